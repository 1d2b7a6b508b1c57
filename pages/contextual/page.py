"""Contextual heads: broad kernels whose softmax denominator hardly depends on the context."""

from functools import partial

import streamlit as st

from pages.contextual import captions as words
from pages.contextual.sections import (
    draw_denominators,
    draw_evidence,
    draw_layer,
    draw_weights,
    heads_table,
)
from pages.shared.cards.card import card
from pages.shared.cards.one_head import draw_duplicates
from pages.shared.experiments.contextual_controls import (
    choose_first_windows,
    choose_thresholds,
    choose_token,
)
from pages.shared.jobs import results
from pages.shared.selection.head_choice import offer_head
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.contextual_heads.behaviour import regrouped
from poskernel_core.analyses.contextual_heads.figures import plane_figure
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads, ContextualParams
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.layout import quoted

PLACE = Place(
    "Context",
    "Which heads average over many tokens, with nearly the same softmax denominator in "
    "every context?",
    questions=("contextual-heads", "denominators", "token-weights", "kernel-distances"),
)


def draw_plane(selection: Selection, heads: Result, limits: dict[str, float]) -> None:
    """Draw all heads by kernel breadth and CV of the denominator, and as a table."""
    count = int((heads.values["group"] == words.CONTEXTUAL).sum())
    broad = counted(f"{limits['broad']:.0f}", "token")
    st.markdown(
        f"**{count} of {counted(heads.values['group'].size, 'head')} "
        f"{'is' if count == 1 else 'are'} contextual** for "
        f"{quoted(heads.params['token'])} at n = {selection.query}. A contextual head has "
        f"an effective token count (ETC) of {broad} or more and a coefficient of variation (CV) of "
        f"the softmax denominator of {limits['steady']:g} or less, and is neither a local nor a "
        "duplicate-token head."
    )
    figure = partial(
        plane_figure, heads, selection.layer, selection.head, limits["broad"], limits["steady"]
    )
    card("plane", figure, heads, words.PLANE, "Breadth and steadiness of all heads")
    heads_table(heads, selection.cell)


def draw_head(
    selection: Selection, heads: Result, token: str, limits: dict[str, float], first_windows: int
) -> None:
    """Draw the selected head: the evidence for its group, its denominators and its tokens."""
    head = selection.of(heads)
    st.subheader(f"{head_link(selection.cell)}: {head.text_of('group')}", anchor="head")
    draw_evidence(head, limits)
    draw_denominators(selection, token, first_windows)
    left, right = st.columns(2)
    with left:
        draw_duplicates(heads, selection)
    with right:
        draw_weights(selection, token)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    offer_head(selection, "contextual")
    longest = selection.run.context
    if selection.query <= selection.skip:
        st.info(
            f"At n = {selection.query} with the first {counted(selection.skip, 'key')} skipped, "
            "no keys are left to average over: choose a later query position, or a smaller skip."
        )
    else:
        one, two, three = st.columns([3, 4, 2], vertical_alignment="bottom")
        token = choose_token(one, selection.run.model)
        first_windows = choose_first_windows(two, 64, selection.run.windows)
        with three.popover("Thresholds", icon=":material/tune:", width="stretch"):
            limits = choose_thresholds(longest)
        asked = ContextualParams(
            query=selection.query, first_windows=first_windows, token=token, skip=selection.skip
        )
        with st.container():  # so that widgets below keep their places
            found = results.fetch(ContextualHeads, selection.run, asked)
            if found is not None:
                heads = regrouped(found, **limits)
                draw_plane(selection, heads, limits)
                draw_head(selection, heads, token, limits, first_windows)
        draw_layer(selection)
