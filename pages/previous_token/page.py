"""Previous-token heads: the ranking of all heads, and the mechanism of the selected one."""

from functools import partial

import streamlit as st

from pages.previous_token import captions as words
from pages.previous_token.ranking import published_table, ranked_table
from pages.previous_token.score_pictures import draw_stages, draw_tangent
from pages.shared.cards.card import card
from pages.shared.cards.one_head import draw_profile
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.previous_token.figures import scores_figure, table_figure
from poskernel_core.analyses.previous_token.spec import PreviousToken, PreviousTokenParams
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text

PLACE = Place(
    "Previous token",
    "Which heads look one token back, and how: by position, or by avoiding the token itself.",
    questions=("previous-token", "profile", "tangent", "stages"),
)

MAX_OFFSETS = 32
REACHES = (4, 8, 16, 32)


def draw_ranking(selection: Selection, ranked: Result) -> None:
    """Draw the table of all heads, and the post's ranking next to it."""
    share = float(ranked.values["share_previous"])
    count = round(share * ranked.values["ratio"].size)
    first = ranked.values["largest_offset"] == 1
    unclear = int((first & (ranked.values["ratio"] >= ranked.params["clean"])).sum())
    rest = f", though in {unclear} of them the second is nearly as large" if unclear else ""
    st.markdown(
        f"**{count} of {counted(ranked.values['ratio'].size, 'head')} ({100 * share:.0f} %)** "
        f"{'has' if count == 1 else 'have'} the previous token as "
        f"{'its' if count == 1 else 'their'} largest diagonal{rest}."
    )
    figure, draw = partial(table_figure, ranked), partial(ranked_table, ranked, selection.cell)
    card("ranking", figure, ranked, words.TABLE, "Heads by their diagonals", draw)
    published_table(selection.run.model.name)


def draw_head(selection: Selection, ranked: Result, reach: int) -> None:
    """Draw the selected head's diagonals: attention, and raw scores."""
    head = selection.of(ranked)
    st.subheader(f"{head_link(selection.cell)}: {head.text_of('kind')}", anchor="head")
    st.markdown(
        f"Largest diagonal: offset {int(head.values['largest_offset'])} "
        f"({value_text(head, 'largest_mass')} of the attention); second: offset "
        f"{int(head.values['second_offset'])} ({value_text(head, 'second_mass')}). "
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
        figure = partial(scores_figure, scores, "", reach)
        card("scores", figure, scores, words.SCORES, "Mean raw score by offset")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    ranked = results.fetch(PreviousToken, selection.run, PreviousTokenParams())
    if ranked is not None:
        draw_ranking(selection, ranked)
        reach = st.select_slider(
            "Offsets shown on either side (tokens)", REACHES, 8, **linked("reach")
        )
        draw_head(selection, ranked, reach)
        draw_tangent(selection, reach)
        draw_stages(selection)
