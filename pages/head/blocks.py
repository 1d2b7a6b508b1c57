"""The small figures of one head; each heading links to the page on its subject."""

from functools import partial

import streamlit as st

from pages.head import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.figure import chart
from pages.shared.cards.one_head import (
    draw_duplicates,
    draw_kernel,
    draw_profile,
    draw_similarity,
    draw_variation,
    shares_told,
)
from pages.shared.cards.plain import plain
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses import find
from poskernel_core.analyses.additivity.spec import Additivity, AdditivityParams
from poskernel_core.analyses.contextual_heads.denominators import Denominators, DenominatorsParams
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads, ContextualParams
from poskernel_core.analyses.headvis.figures import examples_table, sharpest
from poskernel_core.analyses.headvis.spec import HeadExamples, HeadExamplesParams
from poskernel_core.analyses.induction.figures import head_scores_figure
from poskernel_core.analyses.induction.spec import InductionScores, InductionScoresParams
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.place_and_content.figures import place_and_content_figure
from poskernel_core.analyses.place_and_content.spec import PlaceAndContent, PlaceAndContentParams
from poskernel_core.analyses.position_sources.figures import bars_figure
from poskernel_core.analyses.position_sources.spec import PositionSources, PositionSourcesParams
from poskernel_core.analyses.previous_token.spec import PreviousToken, PreviousTokenParams
from poskernel_core.analyses.score_shares.figures import score_shares_figure
from poskernel_core.analyses.score_shares.spec import ScoreShares, ShareParams
from poskernel_core.analyses.sink_anatomy.figures import arrangement_rows, sink_anatomy_figure
from poskernel_core.analyses.sink_anatomy.spec import SinkAnatomy, SinkAnatomyParams
from poskernel_core.analyses.sinks.figures import sinks_figure
from poskernel_core.analyses.sinks.spec import AttentionSinks, SinkParams
from poskernel_core.common.rounding import counted

OFFSETS = 24
"""Largest offset of the profile, tokens."""

FEW_SOURCES = 7
"""Sources of position with a bar of their own."""


def draw_curve(selection: Selection) -> None:
    """Draw the kernel and the observed attention."""
    _heading(selection, "Positional kernel", "positional_kernels")
    found = results.fetch(
        PositionalKernel, selection.run, KernelParams(skip=selection.skip, query=selection.query)
    )
    if found is not None:
        draw_kernel(found, selection)


def draw_experiments(selection: Selection) -> None:
    """Draw the results of experiments, two blocks in a row, or buttons that compute them."""
    places = (_places,) if selection.located.geometry.scheme == PlaceAndContent.scheme else ()
    blocks = (
        _shares,
        *places,
        _sources,
        _anatomy,
        _induction,
        _duplicates,
        _denominators,
        _additivity,
        _examples,
    )
    for first in range(0, len(blocks), 2):
        for column, draw in zip(st.columns(2), blocks[first : first + 2], strict=False):
            with column:
                draw(selection)


def _heading(selection: Selection, title: str, page: str, **more: str) -> None:
    """Draw a heading that links to the page on its subject, with the same selection."""
    st.markdown(f"##### [{title}]({page_address(page, selection.cell, **more)})")


def draw_diagonals(selection: Selection) -> None:
    """Draw the mean attention by offset."""
    _heading(selection, "Diagonals", "previous_token")
    found = results.fetch(PreviousToken, selection.run, PreviousTokenParams())
    if found is not None:
        draw_profile(selection.of(found).only("profile"), OFFSETS)


def draw_sinks(selection: Selection) -> None:
    """Draw the attention to the first keys."""
    _heading(selection, "Sink", "etc_heatmap", measure="attention sink")
    found = results.fetch(AttentionSinks, selection.run, SinkParams())
    if found is not None:
        head = selection.of(found).only("alpha")
        card("sinks", partial(sinks_figure, head), head, words.SINKS, "Attention to the first keys")


def _anatomy(selection: Selection) -> None:
    _heading(selection, "What makes the sink", "etc_heatmap", measure="sink by standing first")
    defaults = find("sink-anatomy").default_params(selection.run, selection.located.geometry)
    asked = SinkAnatomyParams(**defaults)
    found = fetch_when_asked(SinkAnatomy, selection.run, asked, "compute-anatomy")
    if found is None:
        return
    head = selection.of(found)
    if reason := str(head.texts["reason"]):
        st.caption(f"{selection.cell} has {reason} of its attention.")
        return
    figure = partial(sink_anatomy_figure, head)

    def draw() -> None:
        chart("anatomy", figure)
        markdown_table(
            ("Two front tokens (position ids)", "Attention to the first", "To the second"),
            arrangement_rows(head),
        )

    title = f"What makes the first key a sink of {selection.cell}"
    card("anatomy", figure, head, words.ANATOMY, title, draw)


def _shares(selection: Selection) -> None:
    _heading(
        selection,
        "Score variance explained by position",
        "etc_heatmap",
        measure="score variance explained by position",
    )
    asked = ShareParams(skip=selection.skip)
    found = fetch_when_asked(ScoreShares, selection.run, asked, "compute-shares")
    if found is not None:
        head = selection.of(found)
        figure = partial(score_shares_figure, head)
        card("shares", figure, head, words.SHARES, "Score variance explained, by query position")


def _places(selection: Selection) -> None:
    _heading(selection, PlaceAndContent.title, "explore", arrange="place and content")
    asked = PlaceAndContentParams(skip=selection.skip)
    found = fetch_when_asked(PlaceAndContent, selection.run, asked, "compute-places")
    if found is not None:
        head = selection.of(found)
        figure = partial(place_and_content_figure, head)
        card("places", figure, head, words.PLACES, "What decides the scores, by query position")


def _sources(selection: Selection) -> None:
    _heading(selection, "Sources of position", "position_sources")
    asked = PositionSourcesParams(skip=selection.skip)
    found = fetch_when_asked(PositionSources, selection.run, asked, "compute-sources")
    if found is not None:
        head = selection.of(found).only("share", "equal_share", "noise", "position_share")
        figure = partial(bars_figure, head, FEW_SOURCES)
        card("sources", figure, head, words.SOURCES, "What writes its position")


def _induction(selection: Selection) -> None:
    _heading(selection, "Induction", "induction_recency")
    defaults = find("induction-scores").default_params(selection.run, selection.located.geometry)
    asked = InductionScoresParams(**defaults)
    found = fetch_when_asked(InductionScores, selection.run, asked, "compute-induction")
    if found is not None:
        head = selection.of(found)
        shown = head.only("induction", "previous_mass", "duplicate")
        card(
            "induction",
            partial(head_scores_figure, shown),
            shown,
            words.INDUCTION,
            "Attention in repeated random tokens",
        )


def _duplicates(selection: Selection) -> None:
    _heading(selection, "Duplicates of the current token", "contextual")
    asked = _contextual(selection)
    if asked is None:
        return
    found = fetch_when_asked(ContextualHeads, selection.run, asked, "compute-duplicates")
    if found is not None:
        draw_duplicates(found, selection)


def _denominators(selection: Selection) -> None:
    _heading(selection, "Softmax denominator", "contextual")
    if _contextual(selection) is None:
        return
    asked = DenominatorsParams(head=selection.cell, skip=selection.skip)
    found = fetch_when_asked(
        Denominators, selection.run, asked, "compute-denominators", "variation"
    )
    if found is not None:
        draw_variation(found)


def _additivity(selection: Selection) -> None:
    _heading(selection, "Is the split additive?", "positional_kernels")
    defaults = find("additivity").default_params(selection.run, selection.located.geometry)
    asked = AdditivityParams(**defaults)
    found = fetch_when_asked(Additivity, selection.run, asked, "compute-additivity", "similarity")
    if found is not None:
        st.markdown(shares_told(selection.of(found), selection.cell))
        draw_similarity(found, selection)


def _examples(selection: Selection) -> None:
    _heading(selection, "Where it attends most sharply", "own_text")
    found = fetch_when_asked(HeadExamples, selection.run, HeadExamplesParams(), "compute-examples")
    if found is None:
        return
    examples = sharpest(found, selection.layer, selection.head)

    def draw() -> None:
        for each in examples:
            looking, seen = (marked(*each.around(place)) for place in (each.query, each.key))
            st.markdown(
                f"{each.attention:.2f} of {looking}  \nto {seen} "
                f":small[({counted(each.query - each.key, 'token')} back)]"
            )

    card(
        "examples",
        partial(examples_table, examples),
        found.only("max_activation", "mean_max_activation").select(
            layer=selection.layer, head=selection.head
        ),
        words.EXAMPLES,
        f"Largest attention of {selection.cell}, text by text",
        draw,
    )


def marked(before: str, token: str, after: str) -> str:
    """Return a piece of text as Markdown, with one token in bold.

    Spaces around the token stay outside: Markdown shows stars where bold text begins or ends with a
    space, or begins with a sign right after a letter.
    """
    word = token.strip(" ") or "␣"
    left, _, right = token.partition(word)
    return f"{_shown(before + left)}:primary[**{_shown(word)}**]{_shown(right + after)}"


def _shown(text: str) -> str:
    """Return tokens in one line: line breaks as a sign, Markdown escaped."""
    return plain(text.replace("\n", "⏎"))


def _contextual(selection: Selection) -> ContextualParams | None:
    """Return the parameters of contextual heads; None, with a caption, if no key is left."""
    if selection.query <= selection.skip:
        st.caption("All keys are skipped at this position: choose a later one, or a smaller skip.")
        return None
    return ContextualParams(query=selection.query, skip=selection.skip)
