"""Previous-token heads: the ranking of all heads, and how the selected one does it."""

from __future__ import annotations

from functools import partial
from typing import cast

import streamlit as st

from pages.parts import results
from pages.parts import words_positions as words
from pages.parts.cards import card
from pages.parts.contents import contents_here
from pages.parts.figures.of_positions import profile_figure, scores_figure, table_figure
from pages.parts.ranking import published_table, ranked_table
from pages.parts.score_pictures import draw_stages, draw_tangent
from pages.parts.selection import Selection
from poskernel_core.analyses.base import Result
from poskernel_core.rounding import value_text

selection = cast(Selection, st.session_state["selection"])
MOST = 32
REACHES = (4, 8, 16, 32)


def draw_ranking(ranked: Result) -> None:
    """Draw the table of all heads, and the post's ranking beside it."""
    share = float(ranked.values["share_previous"])
    count = round(share * ranked.values["ratio"].size)
    st.markdown(
        f"**{count} of {ranked.values['ratio'].size} heads ({share:.0%})** have the previous token "
        "as their largest diagonal."
    )
    card("ranking", partial(table_figure, ranked), ranked, words.TABLE, "Heads by their diagonals",
         draw=lambda: ranked_table(ranked, selection.cell))  # fmt: skip
    published_table(selection.run.model.name)


def draw_head(ranked: Result, reach: int) -> None:
    """Draw the selected head's diagonals: attention, and raw scores."""
    head = ranked.select(layer=selection.layer, head=selection.head)
    st.subheader(f"{selection.cell}: {head.text_of('kind')}", anchor="head")
    st.markdown(
        f"Largest diagonal: offset {int(head.values['largest_offset'])} "
        f"({value_text(head, 'largest_mass')} of the attention); second: offset "
        f"{int(head.values['second_offset'])} ({value_text(head, 'second_mass')}). "
        f"**Repeated tokens:** where a token repeats the one before it, the previous token gets "
        f"{value_text(head, 'repeated_mass')}, elsewhere {value_text(head, 'unrepeated_mass')}."
    )
    left, right = st.columns(2)
    with left:
        profile = head.only("profile")
        card("profile", partial(profile_figure, profile, most=MOST), profile, words.PROFILE,
             "Mean attention by offset")  # fmt: skip
    with right:
        scores = head.only("score_profile", "position_profile", "content_profile",
                           "self_contrast", "previous_contrast")  # fmt: skip
        card("scores", partial(scores_figure, scores, "", reach), scores, words.SCORES,
             "Mean raw score by offset")  # fmt: skip


st.title("Previous-token heads")
contents_here()
ranked = results.fetch("previous-token", selection.run)
if ranked is not None:
    draw_ranking(ranked)
    reach = st.select_slider(
        "Offsets shown on either side (tokens)", REACHES, 8, key="reach", bind="query-params"
    )
    draw_head(ranked, reach)
    draw_tangent(selection, reach)
    draw_stages(selection)
