"""Contextual heads: broad kernels whose softmax denominator hardly depends on the context."""

from functools import partial

import numpy as np
import streamlit as st

from pages.shared.cards.one_head import draw_duplicates, draw_variation
from pages.shared.cards.show import show
from pages.shared.choices.fit import fitted_number
from pages.shared.experiments.contextual_controls import (
    choose_first_windows,
    choose_texts,
    choose_thresholds,
    choose_token,
)
from pages.shared.jobs import results
from pages.shared.selection.head_choice import offer_head
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import (
    choice_table,
    errors_line,
    heads_frame,
    markdown_table,
    number_columns,
    rounded_table,
    word_lists,
)
from poskernel_core.analyses.claims import pairs_at
from poskernel_core.analyses.contextual_heads.denominators import (
    Denominators,
    DenominatorsParams,
    TokenWeights,
    TokenWeightsParams,
)
from poskernel_core.analyses.contextual_heads.spec import (
    BEHAVIOURS,
    ContextualHeads,
    ContextualParams,
    regrouped,
)
from poskernel_core.analyses.kernels.distances import KernelDistances, KernelDistancesParams
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.plotting.layout import quoted

CONTEXTUAL = BEHAVIOURS.index("contextual")
MAX_LINES = 16
WIDE = 100  # from this ratio of largest to smallest denominator on, their axis is logarithmic
COLUMNS = {
    "etc": ("ETC (tokens)", "effective token count of the destination token's mean kernel"),
    "denominator_cv": (
        "CV",
        "variation of the denominator over windows: its standard deviation, relative to its mean",
    ),
    "predicted_cv": ("independent", "the CV if tokens of a window were independent"),
    "local_mass": ("last 10 tokens", "share of the kernel's mass there"),
    "near_duplicates": (
        "near duplicates",
        "attention to duplicates up to 10 tokens back, minus that to other tokens there",
    ),
    "far_duplicates": ("far duplicates", "the same for duplicates further back"),
}


def heads_table(heads: Result, selected: str) -> None:
    """Draw every head as a row: contextual heads first, by ascending CV."""
    numbers = {label: heads.values[name] for name, (label, _) in COLUMNS.items()}
    table = heads_frame({"group": np.array(heads.text_of("group"))} | numbers)
    order = np.lexsort(
        (table[COLUMNS["denominator_cv"][0]], heads.values["group"].ravel() != CONTEXTUAL)
    )
    rounded = rounded_table(table.iloc[order], heads, {COLUMNS[name][0]: name for name in COLUMNS})
    choice_table(rounded, "contextual-table", select_head, number_columns(dict(COLUMNS.values())))
    listed = counted(len(table), "head")
    st.caption(f"{listed}: contextual ones first, by ascending CV. Selected: {selected}.")
    errors_line(heads)


def draw_evidence(head: Result, limits: dict[str, float]) -> None:
    """Draw the evidence for a head's group: each number next to its threshold."""
    read, token = counted(head.provenance["first_windows"], "window"), head.params["token"]
    duplicates = f"duplicate token from {limits['duplicates']:g}"
    rows = (
        ("Attention to near duplicates", "near_duplicates", duplicates),
        ("Attention to far duplicates", "far_duplicates", duplicates),
        ("Mass in the last 10 tokens", "local_mass", f"local kernel from {limits['local']:g}"),
        (
            f"Effective token count (ETC) of {quoted(token)} at n = {head.params['query']}",
            "etc",
            f"contextual from {limits['broad']:.0f}",
        ),
        (f"CV over {read}", "denominator_cv", f"contextual up to {limits['steady']:g}"),
        ("CV expected of independent tokens", "predicted_cv", "no threshold"),
    )
    cells = [(label, value_text(head, name), limit) for label, name, limit in rows]
    markdown_table(("Evidence", "Value", "Threshold"), cells)


def draw_denominators(selection: Selection, token: str, first_windows: int) -> None:
    """Draw the selected head's denominators along positions, and their variation.

    At most ``MAX_LINES`` of the ``first_windows`` are read, so that lines can be distinguished.
    """
    params = DenominatorsParams(
        head=selection.cell,
        token=token,
        skip=selection.skip,
        first_windows=min(MAX_LINES, first_windows),
        **choose_texts(),
    )
    result = results.fetch(Denominators, selection.run, params)
    if result is None:
        return
    left, right = st.columns(2)
    lines = result.only(
        *(n for n in ("denominator", "own_denominator", "mean") if n in result.values)
    )
    low, high = (float(pick(result.values["denominator"])) for pick in (np.min, np.max))
    log_y = high > WIDE * max(low, 1e-300)
    show("denominators", lines, f"Denominators of {selection.cell}", column=left, log_y=log_y)
    with right:
        draw_variation(result)


def draw_weights(selection: Selection, token: str) -> None:
    """Draw to which tokens content adds most and least attention."""
    params = TokenWeightsParams(
        head=selection.cell, query=selection.query, token=token, skip=selection.skip
    )
    result = results.fetch(TokenWeights, selection.run, params)
    if result is None:
        return
    words = partial(word_lists, result, ("up", "down"), "nats", "token-weights")
    show("weights", result, f"Token weights of {selection.cell}", above=words)


def draw_layer(selection: Selection) -> None:
    """Draw the distances between the kernels of a layer's heads, and their groups."""
    st.subheader(f"Kernels of layer {selection.layer}", anchor="layer-kernels")
    left, right = st.columns([3, 2])
    alike = right.slider(
        "Largest distance within a group",
        step=0.01,
        **fitted_number("alike", KernelDistancesParams.ends("alike"), 0.1),
    )
    apart = right.slider(
        "Distance that rules a pair out",
        step=0.01,
        **fitted_number("apart", KernelDistancesParams.ends("apart"), 0.5),
    )
    query = max(selection.query, selection.skip)
    params = KernelDistancesParams(query=query, skip=selection.skip, alike=alike, apart=apart)
    result = results.fetch(KernelDistances, selection.run, params)
    if result is None:
        return
    layer = result.select(layer=selection.layer)
    right.markdown(pairs_told(layer, alike, apart))
    show("distances", layer, "Distances between kernels", column=left)


def pairs_told(layer: Result, alike: float, apart: float) -> str:
    """Return the groups and the ruled-out pairs as Markdown."""
    groups, near, far = (
        layer.values["group"],
        pairs_at(layer, alike, "below"),
        pairs_at(layer, apart),
    )
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    links = [head_link(head_name(layer.chosen["layer"], head)) for head in range(len(groups))]
    named = [
        ", ".join(links[head] for head in group)
        + ("" if near.sure[group[0], group[1:]].all() else " (not resolved)")
        for group in members
        if len(group) > 1
    ]
    out = [f"{links[i]}–{links[j]}" for i, j in np.argwhere(far.sure)]
    pairs = len(groups) * (len(groups) - 1) // 2
    return (
        f"**Candidates for superposition:** {'; '.join(named) or 'none'}.  \n"
        f"**Ruled out:** {len(out)} of {counted(pairs, 'pair')}{far.beside}"
        f"{': ' + ', '.join(out) if out else ''}."
    )


PLACE = Place(
    "Context",
    "Which heads average over many tokens, with nearly the same softmax denominator in "
    "every context?",
    questions=("contextual-heads", "denominators", "token-weights", "kernel-distances"),
)


def draw_plane(selection: Selection, heads: Result, limits: dict[str, float]) -> None:
    """Draw all heads by kernel breadth and CV of the denominator, and as a table."""
    broad = counted(f"{limits['broad']:.0f}", "token")
    st.markdown(
        f"For {quoted(heads.params['token'])} at n = {selection.query}, a contextual head has "
        f"an effective token count (ETC) of {broad} or more and a coefficient of variation (CV) of "
        f"the softmax denominator of {limits['steady']:g} or less, and is neither a local nor a "
        "duplicate-token head. Groups go by the numbers; the count by their intervals."
    )
    place = selection.layer, selection.head
    show("plane", heads, "Breadth and steadiness of all heads", place=place)
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
        params = ContextualParams(
            query=selection.query, first_windows=first_windows, token=token, skip=selection.skip
        )
        with st.container():  # so that widgets below keep their places
            if result := results.fetch(ContextualHeads, selection.run, params):
                heads = regrouped(result, **limits)
                draw_plane(selection, heads, limits)
                draw_head(selection, heads, token, limits, first_windows)
        draw_layer(selection)
