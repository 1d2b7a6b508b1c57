"""One head's positional kernel: curve, map, and the layer around it."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from pages.shared.cards.figure import charts
from pages.shared.cards.one_head import draw_kernel, draw_similarity, shares_told
from pages.shared.cards.rest import rest
from pages.shared.cards.show import show
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_when_asked, is_wanted, offer
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.selection.source import choose_source
from pages.shared.tables.summary import summary
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses import find
from poskernel_core.analyses.additivity.spec import Additivity, AdditivityParams
from poskernel_core.analyses.base import QueryParams
from poskernel_core.analyses.dilution.longer import LongerContexts, LongerContextsParams
from poskernel_core.analyses.dilution.spec import Dilution, DilutionParams
from poskernel_core.analyses.dilution.views import ranking
from poskernel_core.analyses.foreseen.spec import ForeseenAttention
from poskernel_core.analyses.kernel_only.spec import (
    HeadsReplaced,
    HeadsReplacedParams,
    KernelOnlyCost,
    KernelOnlyCostParams,
    KernelOnlyHead,
    KernelOnlyHeadParams,
)
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.kernels.figures import (
    PANELS,
    panels,
)
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.kernels.kernel_map import KernelMap, KernelMapParams
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text


def draw_dilution(selection: Selection) -> None:
    """Draw how the selected head's ETC grows with its visible keys."""
    st.subheader("Does it spread out over more keys?", anchor="more-keys")
    if result := results.fetch(Dilution, selection.run, DilutionParams(skip=selection.skip)):
        show("dilution", selection.of(result))


def draw_longer(selection: Selection) -> None:
    """Draw kernels and loss in longer contexts, if asked for, since the model runs again."""
    st.subheader("What breaks in a longer context?", anchor="longer")
    geometry = selection.located.geometry
    if geometry.scheme == "learned":
        st.caption(
            f"This model's positions are learned and end at {counted(geometry.n_ctx, 'token')}, so "
            "it reads no longer context."
        )
        return
    params = LongerContextsParams(skip=selection.skip)
    cards = ("longer-kernel", "longer-heads", "longer-loss")
    result = fetch_when_asked(LongerContexts, selection.run, params, "compute-longer", *cards)
    if result is None:
        return
    st.markdown(_read(result))
    show("longer-kernel", selection.of(result).only("kernel", "longest_distance", "distance"))
    left, right = st.columns(2)
    distances = result.only("longest_distance", "distance")
    title, draw = "Heads whose kernels change most", partial(_draw_ranking, distances)
    show("longer-heads", distances, title, draw, column=left)
    show("longer-loss", result.only("loss_change", "loss"), column=right)


def _read(result: Result) -> str:
    """Say how long the contexts are, held against the trained length, and what is left out."""
    length, factors = result.params["length"], result.coordinates["factor"].tolist()
    longest, trained = factors[-1] * length, result.provenance["trained_length"]
    within = (
        "even the longest context is no longer"
        if longest <= trained
        else "longer contexts are new to it"
    )
    sentences = [
        f"{counted(result.provenance['texts'], 'text')}, read in contexts of {length:,} tokens and "
        f"of {' and '.join(map(str, factors[1:]))} times as many.",
        f"The model was made for {counted(trained, 'token')}: {within}.",
        *(f"Left out: {reason}." for reason in result.provenance["left_out"]),
    ]
    return " ".join(sentences).replace("..", ".")


def _draw_ranking(result: Result) -> None:
    """Draw a table of the heads that change most, with links."""
    names, last = result.words("scaling"), int(result.coordinates["factor"][-1])
    rows = []
    for layer, head in ranking(result):
        own = result.select(layer=layer, head=head, factor=last)
        numbers = [value_text(own.select(scaling=place), "distance") for place in range(len(names))]
        numbers[0] = value_text(own, "longest_distance")  # as sentences and the Map have it
        rows.append((head_link(head_name(layer, head)), *numbers))
    markdown_table(("Head", *(f"{name} angles" for name in names)), rows)


def draw_foreseen(selection: Selection) -> None:
    """Draw what few keys capture of the head's attention, and how large caches must be."""
    st.subheader("How much attention can be foreseen?", anchor="foreseen-attention")
    params = QueryParams(skip=selection.skip, query=selection.query)
    result = results.fetch(ForeseenAttention, selection.run, params)
    if result is None:
        return
    if np.isnan(result.values["captured"]).all():
        st.info(
            "Keys are chosen by one half of the texts and measured on the other half. These sums "
            "are not kept by groups of texts, as those that come with the project: choose another "
            "number of windows."
        )
        return
    head, at = selection.of(result), f"n = {selection.query}"
    left, right = st.columns(2)
    show("foreseen", head, f"Keys chosen beforehand, {selection.cell} at {at}", column=left)
    if "kept_keys" not in result.values:
        right.caption("The caches of whole layers come with the last windows.")
        return
    layers = result.only("cache_for_95", "fixed_cache_for_95", "kept_keys", "kept_captured")
    show("cache", layers, f"How many keys would be enough, by layer at {at}", column=right)


def draw_alone(selection: Selection) -> None:
    """Draw what the model loses if heads attend by their kernels alone, if asked for."""
    st.subheader(KernelOnlyCost.title, anchor="position-alone")
    run, skip, cell = selection.run, selection.skip, selection.cell
    left, right = st.columns(2)
    with left:
        one = KernelOnlyHeadParams(skip=skip, head=cell)
        if result := fetch_when_asked(KernelOnlyHead, run, one, "compute-alone"):
            title = f"What the model loses without the texts' own attention in {cell}"
            show("alone", result, title)
    with right:
        many = HeadsReplacedParams(skip=skip)
        if result := fetch_when_asked(HeadsReplaced, run, many, "compute-replaced"):
            show("replaced", result)
    params, every = KernelOnlyCostParams(skip=skip), KernelOnlyCostParams(skip=skip, exact="all")
    plan = results.plan(KernelOnlyCost, run, every)
    if all_exact := results.engine().ready(plan) or is_wanted(plan.key):
        params = every
    if result := fetch_when_asked(KernelOnlyCost, run, params, "compute-all-alone"):
        show("all-alone", result)
        if not all_exact:
            what, button = "exact costs of all but the ten largest", "compute-all-exactly"
            offer(what, "Compute all exactly", button, plan.key, located=selection.located)


def draw_additivity(selection: Selection) -> None:
    """Draw the parts of the keys' variance, and how similar content stays across positions."""
    st.subheader("Is the split additive?", anchor="additivity")
    params = find("additivity").default_params(selection.run, selection.located.geometry)
    result = results.fetch(Additivity, selection.run, AdditivityParams(**params))
    if result is None:
        return
    read = counted(result.provenance["passages"], "passage")
    places = counted(len(result.coordinates["shift"]), "place")
    st.markdown(f"{shares_told(selection.of(result), selection.cell)} ({read} at {places}.)")
    left, right = st.columns(2)
    shares = result.only("position_share", "content_share", "interaction_share")
    title = f"Position and content, layer {selection.layer}"
    show("shares", shares.select(layer=selection.layer), title, column=left)
    with right:
        draw_similarity(result, selection)


PLACE = Place(
    "Kernel",
    "How much a head would attend to each earlier token if all tokens had the same content.",
    questions=(
        "kernel",
        "kernel-map",
        "dilution",
        "longer-contexts",
        "foreseen-attention",
        "kernel-only-cost",
        "kernel-only-head",
        "heads-replaced",
        "additivity",
    ),
)


def draw_head(selection: Selection, kernel: Result, source: dict[str, Any]) -> None:
    """Draw the selected head's kernel over the offset, and its numbers."""
    sampled = source["source"] == "mean"
    etc = None
    with st.container():  # so that widgets below keep their places
        if sampled:
            etc = results.fetch(EtcHeatMap, selection.run, EtcParams(skip=selection.skip))
    params = KernelParams(skip=selection.skip, query=selection.query, **source)
    request = results.plan(PositionalKernel, selection.run, params)
    draw_kernel(kernel, selection, None if sampled else request.key)
    here = {"query": selection.query, "layer": selection.layer, "head": selection.head}
    summary(etc.select(**here) if etc is not None else selection.of(kernel), meanings=True)


def draw_maps(selection: Selection, source: dict[str, Any]) -> None:
    """Draw kernel and observed attention over key and query positions."""
    params = KernelMapParams(skip=selection.skip, head=selection.cell, **source)
    if answer := results.fetch(KernelMap, selection.run, params):
        both = answer.only(*(name for name in PANELS if name in answer.values))
        figures = {f"map-{panel}": partial(figure_of, both, panel=panel) for panel in panels(both)}
        title, draw = (
            f"{selection.cell} from every query position",
            partial(charts, figures, square=True),
        )
        show("map", both, title, draw, figures=figures)


def draw_more(selection: Selection, kernel: Result, source: dict[str, Any]) -> None:
    """Draw what stands below the curve."""
    if source["source"] == "token":
        st.info(
            "A fixed token is placed at one query position only: for the map over all "
            "positions, choose another source of queries."
        )
    else:
        draw_maps(selection, source)
    layer = kernel.select(layer=selection.layer)
    show("layer", layer, f"All heads of layer {selection.layer}", head=selection.head)
    draw_dilution(selection)
    draw_longer(selection)
    draw_foreseen(selection)
    draw_alone(selection)
    draw_additivity(selection)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    source = choose_source(selection.run.model)
    if source is not None:
        params = KernelParams(skip=selection.skip, query=selection.query, **source)
        then = [(EtcHeatMap, EtcParams(skip=selection.skip))] if source["source"] == "mean" else []
        if kernel := results.fetch(PositionalKernel, selection.run, params, *then):
            draw_head(selection, kernel, source)
            with rest() as wanted:
                if wanted:
                    draw_more(selection, kernel, source)
