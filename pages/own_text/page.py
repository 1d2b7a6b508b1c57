"""A reader's own text: every head's attention on it, and its scores in two parts."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import isnan
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import streamlit as st

from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.one_head import draw_conversation, reads_turns
from pages.shared.cards.plain import say, say_error
from pages.shared.cards.show import show
from pages.shared.choices.choices import choose, spell, waits, wanted
from pages.shared.choices.fit import (
    choose_one,
    fitted,
    fitted_flag,
    fitted_index,
    fitted_text,
)
from pages.shared.grid.measure_grid import draw_heads
from pages.shared.jobs import results
from pages.shared.jobs.pressed import can_show, nothing_new
from pages.shared.jobs.results import engine
from pages.shared.look.component import of_matrix, room
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import ROWS_SHOWN, heads_frame, linked_table, number_columns
from poskernel_core.analyses.conversations.spec import ConversationParams, Conversations
from poskernel_core.analyses.headvis.spec import HeadExamples
from poskernel_core.analyses.headvis.views import sharpest
from poskernel_core.analyses.own_text.figures import (
    between,
    head_labels,
    packed_head,
    packed_patterns,
    token_names,
)
from poskernel_core.analyses.own_text.spec import (
    HeadOnText,
    HeadOnTextParams,
    OwnText,
    OwnTextParams,
    kept_around,
)
from poskernel_core.analyses.score_components.figures import AGAINST
from poskernel_core.analyses.score_components.spec import ScoreComponents, ScoreComponentsParams
from poskernel_core.analyses.writing.spec import (
    HeadWrites,
    HeadWritesParams,
    LogitContributions,
    LogitContributionsParams,
)
from poskernel_core.analyses.writing.views import logit_title, word_names
from poskernel_core.common.errors import BadRequest, InvalidField, StoreFailed
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result, plain
from poskernel_core.common.rounding import as_printed
from poskernel_core.common.settings import settings
from poskernel_core.engine.admission import computes
from poskernel_core.plotting.shades import diverging
from poskernel_core.storage.typed import check_text, is_name, keep_text, kept_text, name_of

PARAMETER: Final = "text"
SHARES: Final = "share of attention"
BEGUN: Final = "own-text-begun"
LONG: Final = "texts-too-long"
"""The last texts of the session that no address holds, by the names that stand for them there."""
MAX_LONG: Final = 10

MAX_IN_ADDRESS: Final = 8000
EXAMPLES: Final = {
    "A list that repeats": "blue fire water house king garden; blue fire water house king garden; "
    "blue fire",
    "A verse": "In the beginning God created the heaven and the earth. And the earth was without "
    "form, and void; and darkness was upon the face of the deep.",
    "A conversation": "user: What is the capital of Germany?\nassistant: The capital of Germany is "
    "Berlin.\nuser: And of France?\nassistant: Paris.",
    "A program": "def total(numbers):\n    result = 0\n    for number in numbers:\n"
    "        result += number\n    return result\n",
}


def where_it_attends(selection: Selection) -> dict[str, str]:
    """Return the text in which the head attends most sharply, if example texts are stored."""
    result = results.known(HeadExamples.name, selection.run, selection.located.geometry)
    best = sharpest(selection.of(result), 1) if result else None
    if not best:
        return {}
    text = best[0].words[int(selection.run.start_token) :]
    return {f"Where {selection.cell} attends most sharply": "".join(text)}


def choose_text(selection: Selection) -> str | None:
    """Draw the field and the examples; return the text, or None if it is empty or invalid.

    The address has the name of the text if the server keeps texts, otherwise the text itself.
    """
    gone = _follow_link(next(iter(EXAMPLES.values())) if selection.located.shown else "")
    text: str = st.text_area(
        "Your text",
        height=130,
        placeholder="Type or paste a text, up to the context. Ctrl+Enter shows it.",
        help="only those who have the link can see it",
        **({"key": "text-gone", "on_change": _typed} if gone else fitted_text(PARAMETER)),
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Examples:", width="content")
        for name, example in (EXAMPLES | where_it_attends(selection)).items():
            params = OwnTextParams(text=example, skip=selection.skip)
            if can_show(OwnText, selection.run, params, selection.located):
                st.button(name, on_click=choose, args=(PARAMETER, example), key=f"example-{name}")
    if selection.located.away and text.strip():
        st.caption(nothing_new(selection.located))
    if gone:
        st.warning(gone, icon=":material/link_off:")
    if not text.strip():
        if not gone:
            st.info(
                f"{why} A text appears here if it was computed with these settings."
                if (why := nothing_new(selection.located))
                else "Type or paste a text, or take an example, to see every head's attention on "
                "it."
            )
        return None
    try:
        check_text(text)
    except BadRequest as error:
        say_error(str(error))
        return None
    address, caption = _address_of(text)
    spell(PARAMETER, text, [address])
    st.caption(caption)
    return text


def _follow_link(first: str) -> str:
    """Find the text that the address names; return a sentence if it is gone.

    A session begins with the text ``first``.
    """
    link_value = (wanted(PARAMETER) or [None])[-1]
    if link_value is None and BEGUN not in st.session_state:
        choose(PARAMETER, first)
    st.session_state[BEGUN] = True
    if link_value is None or not is_name(link_value):
        return ""
    text = st.session_state.get(LONG, {}).get(link_value) or kept_text(engine().store, link_value)
    if text is not None:
        choose(PARAMETER, text)
        return ""
    waits()  # the link stays as it is
    return (
        "This server does not have the text of the link: type or paste it again, or ask the sender "
        "for it."
    )


def _typed() -> None:
    choose(PARAMETER, st.session_state["text-gone"])


def _address_of(text: str) -> tuple[str, str]:
    """Return a text's parameter in the address, and what a link with it is good for."""
    if settings().keep_texts and computes():
        with suppress(StoreFailed):  # a full or read-only store: the address holds the text itself
            name, here = keep_text(engine().store, text), urlsplit(st.context.url or "").netloc
            return name, (
                f"A link to this page holds the text's hash alone: it opens on this server "
                f"({here}), which keeps the text, and nowhere else."
            )
    if len(text) <= MAX_IN_ADDRESS:
        return text, "A link to this page holds the text itself, and opens on any server."
    long = st.session_state.get(LONG, {}) | {name_of(text): text}
    st.session_state[LONG] = dict([*long.items()][-MAX_LONG:])
    return name_of(text), (
        "This text is too long for a link, and this server does not keep texts: Back and Forward "
        f"find it while the page is open. A link holds up to {MAX_IN_ADDRESS:,} characters."
    )


SHARE: Final = "of the variance of this row's scores"
NUMBERS: Final = (
    ("Explained by position", "position_share", SHARE),
    ("Explained by content", "content_share", SHARE),
    (
        "Covariance",
        "covariance_share",
        "twice the covariance of position and content, as a share; the three shares add up to 1",
    ),
    (
        "Kernel to attention",
        "attention_distance",
        "total variation distance to the attention on the same keys; 0: position decides",
    ),
    ("On skipped keys", "skipped", "share of attention on the skipped first keys"),
)


def draw_row(selection: Selection, row: Result) -> None:
    """Draw the chosen token's numbers, scores and attention."""
    at, skip = int(row.chosen["query"]), selection.skip
    if at < skip:
        say(
            f"No key is left for the token at position {at}: the first {skip} are skipped. Choose "
            "a later token, or a smaller skip."
        )
        return
    numbers = [float(row.values[name]) for _, name, _ in NUMBERS]
    texts = ["–" if isnan(number) else as_printed(f"{number:.3f}") for number in numbers]
    draw_metrics(
        [(label, text, meaning) for (label, _, meaning), text in zip(NUMBERS, texts, strict=True)]
    )
    title = f"{selection.cell}, query {row.chosen['query']}: position and content of the keys"
    show("row", row, title)


OTHER: Final = "against another key"
OF_KEYS: Final = ("key_margin", "score", "counted", "alibi_bias")


def draw_reasons(selection: Selection, text: str, query: int) -> None:
    """Draw the switch, and what the scores of the query are made of if it is on."""
    params = ScoreComponentsParams(text=text, head=selection.cell, skip=selection.skip, query=query)
    if not can_show(ScoreComponents, selection.run, params, selection.located):
        st.caption(f"Not computed: {ScoreComponents.noun_phrase}.")
        return
    if not st.toggle("Split a score by what wrote the query and the key", **fitted_flag("split")):
        return
    usual = results.fetch(ScoreComponents, selection.run, params)
    if usual is None:
        return
    seen = np.flatnonzero(np.isfinite(usual.values["score"])).tolist()
    best = int(usual.values["chosen_key"])
    left, middle, right = st.columns([2, 4, 2], vertical_alignment="bottom")
    key = _choose("Key token (position)", "key", seen, best, left)
    with middle:
        against = choose_one("Score of the key", AGAINST, "against")
    chosen = {"key": key}
    if against == OTHER:
        rival = next((candidate for candidate in reversed(seen) if candidate != key), key)
        chosen["other"] = _choose("Other key (position)", "other", seen, rival, right)
    changed = params.model_copy(update=chosen)
    result = (
        results.fetch(ScoreComponents, selection.run, changed) if chosen != {"key": best} else usual
    )
    if result is None:
        return
    title = f"{selection.cell}: why token {query} looks at token {key}"
    show("reasons", result, title, against=against)
    title = f"{selection.cell}, query {query}: what the keys are made of"
    names = [name for name in OF_KEYS if name in result.values]
    show("stacks", result.only(*names), title, against=against)


def draw_writes(selection: Selection, text: str, query: int) -> None:
    """Draw the switch, and what heads write to the logits at the query if it is on."""
    params = HeadWritesParams(text=text, head=selection.cell, query=query)
    if not can_show(HeadWrites, selection.run, params, selection.located):
        st.caption(f"Not computed: {HeadWrites.noun_phrase}.")
        return
    if not st.toggle("Show what heads write to the prediction", **fitted_flag("writes")):
        return
    if wrote := results.fetch(HeadWrites, selection.run, params):
        offered = word_names(wrote)
        left, right = st.columns(2)
        show("written", wrote, column=left)
        with right:
            place = offered.index(
                st.selectbox("Token raised or lowered", **fitted_index("word", offered))
            )
            show("by-key", wrote.only("by_key"), "The keys that it comes from", place=place)
    help_text = (
        "one token, often with a leading space; empty: the one that follows, or the likeliest"
    )
    token = st.text_input(
        "Token whose logit is split", help=help_text, **fitted_text("logit", most=64)
    )
    logit_params = LogitContributionsParams(text=text, query=query, token=token or None)
    if result := results.fetch(LogitContributions, selection.run, logit_params):
        show("logit", result, logit_title(result), partial(draw_parts, result, selection))


def draw_parts(result: Result, selection: Selection) -> None:
    """Draw what every head adds, where a click selects it, and the sums of all the rest."""
    heads, mlps = (result.values[f"{name}_contribution"] for name in ("head", "mlp"))
    labels = [
        [f"{head_name(i, j)}: {value:+.3f} logits" for j, value in enumerate(row)]
        for i, row in enumerate(heads)
    ]
    draw_heads(diverging(heads), labels, "logits added", selection, "logit-grid")
    rest = dict(zip(result.words("rest"), result.values["rest_contribution"], strict=True))
    parts = {"all heads": np.nansum(heads), "all MLPs": np.nansum(mlps)} | rest
    summands = ", ".join(f"{as_printed(f'{number:+.2f}')} {name}" for name, number in parts.items())
    logit = as_printed(f"{float(result.values['logit']):.2f}")
    st.caption(f"The logit, {logit}, is {summands}.")


def _choose(label: str, name: str, seen: list[int], default: int, place: Any) -> int:
    """Draw the field of a key that the query sees."""
    return int(place.number_input(label, **fitted(name, range(seen[0], seen[-1] + 1), default)))


_PATTERNS = of_matrix("patterns", "<div class='patterns'></div>")
_TOKENS = of_matrix("tokens", "<div class='attention'></div>")


def draw_patterns(result: Result, cell: str) -> None:
    """Draw every head's pattern; a click selects the head on every page."""
    key = "own-patterns"

    def selected() -> None:
        picked = st.session_state[key].cell
        if picked:
            select_head(picked)

    data = packed_patterns(result) | {
        "labels": head_labels(result),
        "shares": plain(result.values["position_share"]),
        "selected": cell,
    }
    with room(key, 31 * data["layers"]):  # a pattern and its bar, at their smallest
        _PATTERNS(key=key, data=data, on_cell_change=selected)


def draw_tokens(result: Result, token: int, direction: str, pick: Callable[[int], None]) -> None:
    """Draw one head's pattern and the tokens; a click on a token picks its position."""
    key = "own-tokens"

    def selected() -> None:
        picked = st.session_state[key].token
        if picked is not None:
            pick(int(picked))

    data = packed_head(result) | {"selected": token, "direction": direction}
    _TOKENS(key=key, data=data, on_token_change=selected)


PLACE = Place(
    "Text",
    "The attention of every head on a text of yours, and how much of it position explains.",
    questions=(
        "own-text",
        "own-text-head",
        "score-components",
        "head-writes",
        "logit-contributions",
        "conversations",
    ),
)


def draw_pair(all_heads: Result, query: int) -> None:
    """Draw the field of a key token, and the heads that attend most to it from the query token."""
    names = token_names(all_heads, len(all_heads.words("tokens")))
    key = st.number_input(
        "Heads that attend to the token (position)",
        help="from the query token; in a long text, to its block of tokens",
        **fitted("to", range(query + 1), max(0, query - 1)),
    )
    pair = between(all_heads, query, int(key))

    def draw() -> None:
        table = heads_frame({SHARES: pair.values["pattern"]}).dropna()
        columns = number_columns({SHARES: "attention from the query to the key"}, "%.3f")
        largest = table.sort_values(SHARES, ascending=False, kind="stable")[:ROWS_SHOWN]
        linked_table(largest, "pair-heads", columns)

    show("pair", pair, f"Which heads attend from {names[query]} to {names[int(key)]}", draw)


def draw_head(selection: Selection, text: str, all_heads: Result) -> None:
    """Draw the selected head: its pattern and tokens, and the chosen token's row."""
    length = len(all_heads.words("tokens"))
    left, right = st.columns(2, vertical_alignment="bottom")
    at = left.number_input(
        "Query token (position)",
        help="a click on a token chooses it as well",
        **fitted("at", range(length), length - 1),
    )
    ways = ("outgoing", "incoming")
    direction = choose_one("Attention shown on the tokens", ways, "direction", place=right)
    params = HeadOnTextParams(
        text=text, head=selection.cell, skip=selection.skip, around=kept_around(length, at)
    )
    split = can_show(HeadOnText, selection.run, params, selection.located)
    result = results.fetch(HeadOnText, selection.run, params) if split else selection.of(all_heads)
    if result is None:
        return
    draw = partial(draw_tokens, result, at, direction, partial(choose, "at"))
    show("tokens", result.only("pattern"), f"{selection.cell} on the text", draw)
    draw_pair(all_heads, at)
    if not split:
        st.caption("Splitting its scores into position and content takes the model's weights.")
        return
    draw_row(selection, result.select(query=at))
    draw_reasons(selection, text, at)
    draw_writes(selection, text, at)


def read_turns(selection: Selection, text: str) -> str | None:
    """Draw the switch, and return the text as the model reads it; None if it is not there yet.

    It is a conversation if the switch is on: the model's chat template is put around the turns.
    """
    help_text = "Paragraphs that begin with user: or assistant:, or a JSON list of turns."
    if not st.toggle("Read it as a conversation", help=help_text, **fitted_flag("turns")):
        return text
    try:
        params = ConversationParams(text=text)
    except InvalidField as error:
        say_error(str(error))
        return None
    result = results.fetch(Conversations, selection.run, params)
    if result is None:
        return None
    draw_conversation(result, selection)
    return str(result.texts["written"])


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    text = choose_text(selection)
    if text is not None and reads_turns(selection.located):
        text = read_turns(selection, text)
    if text is None:
        return
    params = OwnTextParams(text=text, skip=selection.skip)
    result = results.fetch(OwnText, selection.run, params)
    if result is None:
        return
    draw = partial(draw_patterns, result, selection.cell)
    show("heads", result, "Every head on the text", draw)
    draw_head(selection, text, result)
