"""Previous-token heads: the ranking of all heads, and the mechanism of the selected one."""

from collections.abc import Iterable
from functools import partial
from typing import Final, Literal

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared.cards.one_head import draw_profile
from pages.shared.cards.rest import rest
from pages.shared.cards.show import show
from pages.shared.choices.fit import choose_one, fitted, fitted_flag
from pages.shared.jobs import results
from pages.shared.selection.head_link import head_link, page_address
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from pages.shared.selection.source import choose_text
from pages.shared.selection.zoom import choose_zoom
from pages.shared.tables.tables import (
    ROWS_SHOWN,
    choice_table,
    errors_line,
    heads_frame,
    linked_table,
    number_columns,
    rounded_table,
)
from poskernel_core.analyses.claims import below_the_line
from poskernel_core.analyses.helix.tangent import Tangent, TangentParams
from poskernel_core.analyses.previous_token.spec import (
    PreviousToken,
    PreviousTokenParams,
    Stages,
    StagesParams,
)
from poskernel_core.analyses.previous_token.views import STAGES, largest_diagonals
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted, value_text
from poskernel_core.ledger.published import PREVIOUS_TOKEN_GPT2, PREVIOUS_TOKEN_HEADS_GPT2

KEY = "ranking-table"
COLUMNS = {
    "ratio": "second / largest",
    "largest_offset": "largest at k",
    "previous_mass": "P(1)",
    "self_contrast": "contrast at 0 (nats)",
    "previous_contrast": "contrast at 1 (nats)",
    "position_advantage": "by position (nats)",
    "content_advantage": "by content (nats)",
    "unrepeated_mass": "token differs",
    "repeated_mass": "token repeats",
}
HELP = {
    "second / largest": "second-largest diagonal of the mean attention over the largest",
    "largest at k": "offset of the largest diagonal, tokens",
    "P(1)": "mean attention to the previous token",
    "contrast at 0 (nats)": "raw score of the own token, less that of its neighbours",
    "contrast at 1 (nats)": "raw score of the previous token, less that of its neighbours",
    "by position (nats)": "what position adds to the previous token's score over the own token's",
    "by content (nats)": "what content adds to the previous token's score over the own token's",
    "token differs": "attention to the previous token where the token differs from it",
    "token repeats": "attention to the previous token where the token repeats it",
}
GPT2 = {"model": "gpt2", "revision": "", "checkpoint": "", "context": ""}
"""Parameters of links to the post's model."""


def ranked_table(ranked: Result, selected: str) -> None:
    """Draw every head as a row, most attention first; a click on a row selects the head."""
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    last = ranked.values["profile"].shape[-1] - 1
    back = left.number_input(
        "Look back k (tokens)",
        help="shows P(k) of every head as a column",
        **fitted("back", range(last + 1), 1),
    )
    only = right.toggle(
        f"Only heads whose largest diagonal is k = {back}", **fitted_flag("onlyback")
    )
    table = _table(ranked, back, only)
    if table.empty:
        st.info(f"No head of this model has its largest diagonal at k = {back}.")
        return
    numbers = number_columns(HELP)
    named = {label: name for name, label in COLUMNS.items() if name != "largest_offset"}
    if back != 1:
        meaning = f"mean attention to the token {back} places back"
        numbers |= number_columns({f"P({back})": meaning}, "%.3f")
    choice_table(rounded_table(table, ranked, named), KEY, select_head, numbers)
    others = _below(ranked, back, table.index.tolist())
    st.caption(
        f"{counted(len(table), 'head')}, sorted by P({back}); scroll for more"
        f"{f': below the first {ROWS_SHOWN}, {others}' if others else ''}. Selected: {selected}."
    )
    errors_line(ranked)


def _table(ranked: Result, back: int, only: bool) -> pd.DataFrame:
    columns = {name: np.array(ranked.text_of(name)) for name in ("kind", "diagonal")}
    named = f"P({back})"
    for name, label in COLUMNS.items():
        columns[label] = ranked.values[name]
        if name == "largest_offset":
            columns[named] = ranked.values["profile"][..., back]
    table = heads_frame(columns)
    if only:
        table = table[table["largest at k"] == back]
    return table.sort_values(named, ascending=False)


def _below(ranked: Result, back: int, rows: Iterable[int]) -> str:
    """Return how many heads of the rows that are seen by scrolling may stand above."""
    every = ranked.estimate_of("previous_mass")
    if back != 1:
        every = Estimate(*(part[..., back] for part in ranked.estimate_of("profile")))
    heads = [divmod(row, every.value.shape[1]) for row in rows]
    return below_the_line(every, heads, ROWS_SHOWN)


def published_table(model: str) -> None:
    """Draw the post's ranking of GPT-2 small, as published."""
    with st.expander("Published for GPT-2 small", expanded=model == "gpt2"):
        previous, heads = PREVIOUS_TOKEN_HEADS_GPT2
        st.markdown(
            "On the texts that the post chose, the largest diagonal is the previous token in "
            f"{previous} of {heads} heads. The post's ranking by second / largest:"
        )
        ranking = {"head": list(PREVIOUS_TOKEN_GPT2), "published": PREVIOUS_TOKEN_GPT2.values()}
        linked_table(
            pd.DataFrame(ranking),
            "published-ranking",
            addresses=[page_address("head", cell, **GPT2) for cell in PREVIOUS_TOKEN_GPT2],
            width="content",
        )


HELICES: Final[dict[str, Literal["texts", "repeated"]]] = {
    "windows of the corpus": "texts",
    "one token repeated": "repeated",
}


def draw_tangent(selection: Selection, reach: int) -> None:
    """Draw how the selected head reads the helix around the query position."""
    if selection.located.geometry.scheme != "learned":
        return
    chosen = choose_one("Helix of", HELICES, "helixof")
    query = max(2, min(selection.query, selection.run.context - 2))
    params = TangentParams(query=query, helix_from=HELICES[chosen])
    if result := results.fetch(Tangent, selection.run, params):
        head = selection.of(result)
        names = ("tangent_share", "radial_share", "third_share", "helix_fit")
        tangent, radius, third, fit = (brief(float(head.values[name])) for name in names)
        show("tangent", head, reach=reach)
        st.caption(
            f"Shares of the reading direction: tangent {tangent}, radius {radius}, third direction "
            f"{third}. The helix of {chosen} explains the score with R² {fit} (1 is best). These "
            "have no errors: the axes of the helix turn from sample to sample of texts."
        )


def draw_stages(selection: Selection) -> None:
    """Draw the three stages of the head's attention on one text, whole and in a window."""
    st.subheader(f"Three stages of {selection.cell} on a text", anchor="stages")
    text = choose_text()
    if text is None:
        return
    result = results.fetch(Stages, selection.run, StagesParams(head=selection.cell, **text))
    if result is None:
        return
    zoom = choose_zoom(len(result.values["score"]))
    for full_text in (True, False) if zoom is not None else (True,):
        name = "whole" if full_text else "window"
        stage = partial(figure_of, result, zoom=zoom, whole=full_text)
        figures = {
            f"{name}-{stage_name}": partial(stage, stage=stage_name) for stage_name in STAGES
        }
        title = "The whole text"
        if zoom is not None and not full_text:
            title = f"Positions {zoom[0]} to {zoom[1] - 1}"
        show(f"stages-{name}", result, title, figures=figures)


PLACE = Place(
    "Previous token",
    "Which heads look one token back, and how: by position, or by avoiding the token itself.",
    questions=("previous-token", "profile", "tangent", "stages"),
)

MAX_OFFSETS = 32
REACHES = (4, 8, 16, 32)


def draw_head(selection: Selection, ranked: Result, reach: int) -> None:
    """Draw the selected head's diagonals: attention, and raw scores."""
    head = selection.of(ranked)
    st.subheader(f"{head_link(selection.cell)}: {head.text_of('kind')}", anchor="head")
    st.markdown(
        f"Largest diagonal: offset {value_text(head, 'largest_offset')} "
        f"({value_text(head, 'largest_mass')} of the attention); second: offset "
        f"{value_text(head, 'second_offset')} ({value_text(head, 'second_mass')}). "
        "**Repeated tokens:** in windows where one token in "
        f"{head.params['repeat_every']} is replaced by the one before it, the previous token gets "
        f"{value_text(head, 'repeated_mass')} if it is the same token, otherwise "
        f"{value_text(head, 'unrepeated_mass')}."
    )
    left, right = st.columns(2)
    with left:
        draw_profile(head.only("profile"), MAX_OFFSETS)
    with right:
        scores = head.only(
            "score_profile",
            "position_profile",
            "content_profile",
            "self_contrast",
            "previous_contrast",
        )
        show("scores", scores, "Mean raw score by offset", reach=reach)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    if ranked := results.fetch(PreviousToken, selection.run, PreviousTokenParams()):
        st.markdown(largest_diagonals(ranked))
        draw = partial(ranked_table, ranked, selection.cell)
        show("ranking", ranked, "Heads by their diagonals", draw)
        published_table(selection.run.model.name)
        reach = st.select_slider(
            "Offsets shown on either side (tokens)", **fitted("reach", REACHES, 8)
        )
        draw_head(selection, ranked, reach)
        with rest() as wanted:
            if wanted:
                draw_tangent(selection, reach)
                draw_stages(selection)
