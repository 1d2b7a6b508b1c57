"""The small figures of one head; each heading links to the page on its subject."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st

from pages.shared.cards.embed import in_place_of
from pages.shared.cards.one_head import (
    draw_conversation,
    draw_duplicates,
    draw_kernel,
    draw_profile,
    draw_similarity,
    draw_variation,
    has_conversations,
    shares_told,
)
from pages.shared.cards.plain import plain
from pages.shared.cards.show import show
from pages.shared.jobs import results
from pages.shared.jobs.pressed import (
    compute_button,
    fetch_when_asked,
    is_wanted,
    nothing_new,
    want,
)
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses import find
from poskernel_core.analyses.additivity.spec import Additivity
from poskernel_core.analyses.base import Question
from poskernel_core.analyses.contextual_heads.denominators import Denominators
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads
from poskernel_core.analyses.conversations.spec import Conversations
from poskernel_core.analyses.headvis.spec import HeadExamples
from poskernel_core.analyses.headvis.views import sharpest
from poskernel_core.analyses.induction.spec import InductionScores
from poskernel_core.analyses.kernel_only.spec import KernelOnlyCost
from poskernel_core.analyses.kernels.kernel import PositionalKernel
from poskernel_core.analyses.place_and_content.spec import PlaceAndContent
from poskernel_core.analyses.position_sources.spec import PositionSources
from poskernel_core.analyses.previous_token.spec import PreviousToken
from poskernel_core.analyses.score_shares.spec import ScoreShares
from poskernel_core.analyses.sink_anatomy.spec import SinkAnatomy
from poskernel_core.analyses.sink_anatomy.views import arrangement_rows
from poskernel_core.analyses.sinks.spec import AttentionSinks
from poskernel_core.analyses.views import figure_of
from poskernel_core.analyses.writing.spec import Copying
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

OFFSETS = 24
"""Largest offset of the profile, tokens."""

FEW_SOURCES = 7
"""Sources of position with a bar of their own."""


@dataclass(frozen=True)
class Block:
    """A heading that links to a page, and below it what one analysis says of the head.

    The analysis gets the selection's skip and query, its head if it is about one, and otherwise its
    default parameters. One that is not ``precomputed`` is computed when the reader asks for it, in
    place of the card ``name``.
    """

    name: str
    title: str
    page: str
    question: type[Question[Any]]
    draw: Callable[[Result, Selection], None]
    link: dict[str, str] = field(default_factory=dict)
    cards: tuple[str, ...] = ()
    precomputed: bool = False
    needs_keys: bool = False
    needs_turns: bool = False


def draw_block(block: Block, selection: Selection) -> None:
    """Draw a block, or the button that computes it."""
    st.markdown(f"##### [{block.title}]({page_address(block.page, selection.cell, **block.link)})")
    if block.needs_keys and selection.query <= selection.skip:
        st.caption("All keys are skipped at this position: choose a later one, or a smaller skip.")
        return
    run, params = selection.run, _params(block, selection)
    result = (
        results.fetch(block.question, run, params)
        if block.precomputed
        else fetch_when_asked(block.question, run, params, f"compute-{block.name}", *block.cards)
    )
    if result is not None:
        block.draw(result, selection)


def _params(block: Block, selection: Selection) -> Any:
    """Return what a block asks: the question's defaults, with what is selected."""
    question = find(block.question.name)
    own = {"skip": selection.skip, "query": selection.query, "head": selection.cell}
    fields = question.default_params(selection.run, selection.located.geometry) | {
        key: value for key, value in own.items() if key in question.params.model_fields
    }
    return question.params(**fields)


def draw_experiments(selection: Selection) -> None:
    """Draw the results of experiments, two blocks in a row, or buttons that compute them."""
    scheme = selection.located.geometry.scheme
    blocks = [candidate for candidate in EXPERIMENTS if candidate.question.fits_scheme(scheme)]
    if not has_conversations(selection):
        blocks = [candidate for candidate in blocks if not candidate.needs_turns]
    missing = _missing(blocks, selection)
    if why := nothing_new(selection.located):
        blocks = [candidate for candidate in blocks if candidate.name not in missing]
        if missing:
            names = ", ".join(plain(title) for title, _ in missing.values())
            with in_place_of(*missing):
                st.caption(f"Not computed: {names}. {why}")
    elif len(missing) > 1:
        keys = (key for _, key in missing.values())
        compute_button("Compute all of this head", "compute-all-of-head", want, *keys)
    for first in range(0, len(blocks), 2):
        for column, block in zip(st.columns(2), blocks[first : first + 2], strict=False):
            with column:
                draw_block(block, selection)


def _missing(blocks: Sequence[Block], selection: Selection) -> dict[str, tuple[str, str]]:
    """Return title and key of the results that are neither stored nor asked for, by block."""
    missing = {}
    for block in blocks:
        if not block.needs_keys or selection.query > selection.skip:
            with suppress(PosKernelError):  # said where the block is drawn
                plan = results.plan(block.question, selection.run, _params(block, selection))
                if not (results.engine().ready(plan) or is_wanted(plan.key)):
                    missing[block.name] = block.title, plan.key
    return missing


def _part(
    name: str, title: str, *values: str, **choices: Any
) -> Callable[[Result, Selection], None]:
    """Return what draws a card of the head's values, all of them by default."""

    def draw(answer: Result, selection: Selection) -> None:
        head = selection.of(answer)
        show(name, head.only(*values) if values else head, title, **choices)

    return draw


def _anatomy(result: Result, selection: Selection) -> None:
    head = selection.of(result)
    if str(head.texts["reason"]):
        least = f"{result.params['threshold']:g}"
        st.caption(
            f"{selection.cell} gives the first key less than {least} of its attention: a "
            "sink is taken apart from there on."
        )
        return

    header = ("Two front tokens (position ids)", "Attention to the first", "To the second")
    table = partial(markdown_table, header, arrangement_rows(head))
    show("anatomy", head, f"What makes the first key a sink of {selection.cell}", below=table)


def _additivity(result: Result, selection: Selection) -> None:
    st.markdown(shares_told(selection.of(result), selection.cell))
    draw_similarity(result, selection)


def _examples(result: Result, selection: Selection) -> None:
    head = selection.of(result)

    def draw() -> None:
        for example in sharpest(head):
            looking, seen = (
                marked(*example.around(place)) for place in (example.query, example.key)
            )
            st.markdown(
                f"{example.attention:.2f} of {looking}  \nto {seen} "
                f":small[({counted(example.query - example.key, 'token')} back)]"
            )

    title = f"Largest attention of {selection.cell}, text by text"
    part, table = head.only("max_activation", "mean_max_activation"), partial(figure_of, head)
    show("examples", part, title, draw, figures={"": table})


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


CURVE = Block(
    "kernel", "Positional kernel", "positional_kernels", PositionalKernel, draw_kernel,
    precomputed=True,
)  # fmt: skip
DIAGONALS = Block(
    "profile", "Diagonals", "previous_token", PreviousToken,
    lambda result, selection: draw_profile(selection.of(result).only("profile"), OFFSETS),
    precomputed=True,
)  # fmt: skip
SINKS = Block(
    "sinks", "Sink", "etc_heatmap", AttentionSinks,
    _part("sinks", "Attention to the first keys", "alpha"),
    {"measure": "attention sink"}, precomputed=True,
)  # fmt: skip
EXPERIMENTS = (
    Block(
        "shares", "Score variance explained by position", "etc_heatmap", ScoreShares,
        _part("shares", "Score variance explained, by query position"),
        {"measure": "score variance explained by position"},
    ),
    Block(
        "places", PlaceAndContent.title, "explore", PlaceAndContent,
        _part("places", "What decides the scores, by query position"),
        {"arrange": "place and content"},
    ),
    Block(
        "alone", KernelOnlyCost.title, "positional_kernels", KernelOnlyCost,
        _part("alone", "What the model loses", "cost", "exact", "kernel_only_cost",
              "kernel_only_share"),
    ),
    Block(
        "copying", Copying.title, "own_text", Copying,
        lambda result, selection: show("copying", selection.of(result), "Copying scores"),
        {"writes": "true"},
    ),
    Block(
        "sources", "Sources of position", "position_sources", PositionSources,
        _part("sources", "What writes its position", "share", "equal_share", "noise",
              "position_share", most=FEW_SOURCES),
    ),
    Block(
        "anatomy", "What makes the sink", "etc_heatmap", SinkAnatomy, _anatomy,
        {"measure": "sink by standing first"},
    ),
    Block(
        "induction", "Induction", "induction_recency", InductionScores,
        _part("induction", "Attention in repeated random tokens", "induction", "previous_mass",
              "duplicate"),
    ),
    Block(
        "duplicates", "Duplicates of the current token", "contextual", ContextualHeads,
        draw_duplicates, needs_keys=True,
    ),
    Block(
        "denominators", "Softmax denominator", "contextual", Denominators,
        lambda result, _: draw_variation(result), cards=("variation",), needs_keys=True,
    ),
    Block(
        "additivity", "Is the split additive?", "positional_kernels", Additivity, _additivity,
        cards=("similarity",),
    ),
    Block(
        "conversation", Conversations.title, "own_text", Conversations, draw_conversation,
        {"turns": "true"}, needs_turns=True,
    ),
    Block(
        "examples", "Where it attends most sharply", "own_text", HeadExamples, _examples
    ),
)  # fmt: skip
