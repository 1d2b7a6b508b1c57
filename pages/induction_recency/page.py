"""Induction recency: which of several candidates an induction head prefers, and why."""

from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from jinja2 import Template

from pages.shared.cards.rest import rest
from pages.shared.cards.show import show
from pages.shared.choices.choices import choose
from pages.shared.choices.fit import fitted, fitted_flag, fitted_index
from pages.shared.experiments.random_controls import (
    Draws,
    choose_draws,
    choose_number,
    choose_sequences,
    choose_switches,
    enough_context,
)
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.jobs import results
from pages.shared.selection.head_choice import offer_strongest, ranked
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import linked_table
from poskernel_core.analyses import find
from poskernel_core.analyses.claims import below_the_line
from poskernel_core.analyses.induction.norm_cause import NormCause, NormCauseParams
from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    InductionScores,
    InductionScoresParams,
    RecencyParams,
    RecencyPatterns,
    RecencyPatternsParams,
)
from poskernel_core.analyses.random_tokens.params import CLEAR_SAMPLES, RANDOM_TOKENS
from poskernel_core.analyses.random_tokens.spec import RandomAttention, RandomAttentionParams
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.data.layouts import ROLES
from poskernel_core.plotting.layout import MASKED, quoted
from poskernel_core.plotting.palette import CATEGORICAL, ink_on
from poskernel_core.plotting.shades import linear

MAX_ROWS = 16
COLOURS = dict(zip(ROLES[2:], ("#777D84", *CATEGORICAL[:5]), strict=True))
"""``[A]`` is grey, candidates have the colours of the figures, other tokens have none."""
TABLE = Template(
    """<div style="overflow-x:auto"><table style="border-spacing:3px;font-size:0.85rem">
<caption style="text-align:left">position (tokens)</caption>
<thead><tr><th scope="col">second [A] at</th>
{%- for position in positions %}<th>{{ position }}</th>{% endfor %}</tr></thead>
<tbody>{% for second, cells in rows %}<tr><th scope="row">{{ second }}</th>
{%- for role, word, colour, ink in cells %}<td title="{{ role }}" style="padding:2px 6px;
border-radius:4px;text-align:center;white-space:nowrap;background:{{ colour }}
{%- if ink %};color:{{ ink }};font-weight:600{% endif %}">{{ word }}</td>{% endfor %}</tr>
{%- endfor %}</tbody></table></div>""",
    autoescape=True,
)


def draw_sequences(recency: Result) -> None:
    """Draw a row for every position of the last pair: its roles, or the tokens of one sample."""
    roles, examples = recency.values["role"], recency.texts["examples"]
    seconds = recency.coordinates["second"]
    indices = np.unique(np.linspace(0, len(roles) - 1, MAX_ROWS).round().astype(int))
    tokens = st.toggle("Show the tokens of the first sample", **fitted_flag("showtokens"))
    rows = []
    for i in indices:
        names = [ROLES[role] for role in roles[i]]
        words = [unescape(quoted(token)) for token in examples[i]] if tokens else names
        cells = []
        for name, word in zip(names, words, strict=True):
            colour = COLOURS.get(name, MASKED)
            cells.append((name, word, colour, ink_on(colour) if name in COLOURS else ""))
        rows.append((int(seconds[i]), cells))
    st.html(TABLE.render(positions=range(roles.shape[1]), rows=rows))


MIN_LENGTH = 7
PRESETS = {"Few": MIN_LENGTH, "Many": RANDOM_TOKENS}


def draw_recency(recency: Result, selection: Selection) -> None:
    """Draw the table of sequences, the probabilities, and the head's attention."""
    table, one = recency.only("role", "probability"), selection.of(recency)
    show("sequences", table, "Sequences", lambda: draw_sequences(recency))
    left, right = st.columns(2)
    of_model = "probability", "probability_other", "advantage", "probability_rise"
    show("probability", recency.only(*of_model), column=left)
    of_head = "candidate_attention", "attention_advantage", "attention_rise"
    show("candidates", one.only(*of_head), column=right)
    show("rows", one.only("last_row", "role"))


def draw_patterns(
    draws: Draws,
    sequences: dict[str, Any],
    switches: dict[str, Any],
    seconds: list[int],
    selection: Selection,
) -> None:
    """Draw the attention of every head of a layer, for the chosen position of the pair."""
    layers = list(selection.located.geometry.with_heads)
    left, right = st.columns(2)
    second = (
        left.select_slider("Row: second [A] at (tokens)", **fitted("row", seconds, seconds[-1]))
        if len(seconds) > 1
        else seconds[0]
    )
    layer = right.selectbox("Layer", **fitted_index("rowlayer", layers, selection.layer))
    params = RecencyPatternsParams(second=second, samples=draws.samples, **sequences, **switches)
    result = results.fetch(RecencyPatterns, draws.run, params)
    if result is None:
        return
    patterns = result.only("pattern", "role").select(layer=layer)
    columns = st.columns(2 if layer == selection.layer else 1)
    show("patterns", patterns, column=columns[0])
    if layer == selection.layer:
        show("pattern", patterns.select(head=selection.head), column=columns[1])


def draw_random(draws: Draws, switches: dict[str, Any], selection: Selection, longest: int) -> None:
    """Draw the head's attention to random tokens, and the norms of layer 0."""
    left, middle, last, right = st.columns([3, 2, 2, 3], vertical_alignment="bottom")
    presets = left.container(horizontal=True)
    for name, length in PRESETS.items():
        if length <= longest:
            presets.button(
                f"{name}: {length}",
                on_click=choose,
                args=("rlength", length),
                key=f"length-{length}",
            )
    lengths = range(MIN_LENGTH, longest + 1)
    length = choose_number(middle, "Random tokens", lengths, "rlength", RANDOM_TOKENS)
    most = RandomAttentionParams.ends("trend_from")[1]
    start = choose_number(last, "Trend from key", range(min(most + 1, length - 4)), "trendfrom", 2)
    params = RandomAttentionParams(
        length=length, samples=draws.samples, trend_from=start, **switches
    )
    result = results.fetch(RandomAttention, draws.run, params)
    if result is None:
        return
    rows = [*range(start + 3, length)]
    query = right.select_slider("Row n (tokens)", **fitted("rquery", rows, length - 1))
    row = selection.of(result).select(query=query)
    show("intrinsic", row.only("pattern", "slope", "rank_correlation", "p_value"))
    show("norms", result.only("norm", "norm_exponent", "visible_keys"))


def draw_cause(
    draws: Draws,
    sequences: dict[str, Any],
    switches: dict[str, Any],
    length: int,
    selection: Selection,
) -> None:
    """Draw the recency with equalised norms of layer 0."""
    params = NormCauseParams(
        samples=draws.samples,
        random_length=length,
        **sequences,
        ablate=switches["ablate"],
        ablation=switches["ablation"],
        no_positions=switches["no_positions"],
    )
    result = results.fetch(NormCause, draws.run, params)
    if result is None:
        return
    one = selection.of(result)

    def draw() -> None:
        linked_table(_cause_table(one), "cause-table")

    show("cause", one, f"Are layer 0's norms the cause? {selection.cell}", draw)


MEANINGS = {
    "probability": "probability of the last candidate",
    "probability_advantage": "… minus that of the first",
    "probability_rise": "… in the last row minus in the first",
    "attention": "attention to all candidates",
    "attention_advantage": "attention to the last candidate minus that to the first",
    "attention_rise": "the same, in the last row minus in the first",
    "slope": "slope on random tokens (per token)",
}


def _cause_table(one: Result) -> pd.DataFrame:
    rows = []
    for name, meaning in MEANINGS.items():
        clean, equal = (value_text(one.only(name).select(norms=i), name) for i in (0, 1))
        change = value_text(one, f"{name}_change")
        row = {"": meaning, "norms as they are": clean, "norms equalised": equal, "change": change}
        rows.append(row)
    return pd.DataFrame(rows)


PLACE = Place(
    "Recency",
    "A token [A] occurred twice: first [B] followed it, later [C]. Which of the two does "
    "an induction head predict? The sequences are random tokens; the corpus is not used.",
    questions=(
        "induction-scores",
        "induction-recency",
        "recency-patterns",
        "random-attention",
        "equalised-norms",
    ),
)

MAX_LENGTH = 1000
SHOWN = 5


def draw_scores(selection: Selection, scores: Result) -> None:
    """Draw the induction scores of all heads, and name the strongest."""
    induction = scores.only("induction")
    heads = ranked(induction.values["induction"])
    strongest = ", ".join(
        f"**{head_link(head_name(i, j))}** "
        f"{value_text(induction.select(layer=i, head=j), 'induction')}"
        for i, j in heads[:SHOWN]
    )
    if others := below_the_line(induction.estimate_of("induction"), heads, SHOWN):
        strongest += f" ({others})"
    first, second = (value_text(scores.select(copy=copy), "loss") for copy in (1, 2))

    def draw() -> None:
        st.markdown(
            f"Strongest: {strongest}. Loss of the first half {first} nats, of the second {second}. "
            f"(Over {counted(scores.params['samples'], 'sequence')} of "
            f"{counted(scores.params['period'], 'token')} twice, without ablation.)"
        )
        texts = head_texts(induction, "induction", "induction score")
        shade = linear(induction.values["induction"])
        draw_heads(shade, texts, induction.units["induction"], selection, "induction-grid")

    show("induction", scores, "Induction heads", draw)


def draw_experiment(selection: Selection, draws: Draws, switches: dict[str, Any]) -> None:
    """Draw the experiment on sequences with several candidates."""
    st.subheader("Several candidates", anchor="candidates-of-a")
    sequences = choose_sequences(selection, draws)
    params = RecencyParams(samples=draws.samples, **sequences, **switches)
    with st.container():  # so that widgets below keep their places
        if recency := results.fetch(InductionRecency, draws.run, params):
            draw_recency(recency, selection)
    with rest() as wanted:
        if wanted:
            draw_more(selection, draws, sequences, switches, recency)


def draw_more(
    selection: Selection,
    draws: Draws,
    sequences: dict[str, Any],
    switches: dict[str, Any],
    recency: Result | None,
) -> None:
    """Draw the patterns of the experiment, random tokens, and the cause."""
    n_ctx = selection.located.geometry.n_ctx
    with st.container():  # so that widgets below keep their places
        if recency is not None:
            seconds = recency.coordinates["second"].tolist()
            draw_patterns(draws, sequences, switches, seconds, selection)
    st.subheader("Random tokens", anchor="random-tokens")
    with st.container():
        draw_random(draws, switches, selection, min(MAX_LENGTH, n_ctx))
    if st.toggle(
        "Compare with equalised norms of layer 0's head outputs", **fitted_flag("comparenorms")
    ):
        draw_cause(draws, sequences, switches, min(RANDOM_TOKENS, n_ctx), selection)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    geometry = selection.located.geometry
    if enough_context(selection):
        draws = choose_draws(selection, CLEAR_SAMPLES)
        switches = choose_switches(selection)
        params = find("induction-scores").default_params(draws.run, geometry)
        if scores := results.fetch(InductionScores, draws.run, InductionScoresParams(**params)):
            draw_scores(selection, scores)
            offer_strongest(scores.values["induction"], selection, "induction head")
            draw_experiment(selection, draws, switches)
