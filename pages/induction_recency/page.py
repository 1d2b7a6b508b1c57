"""Induction recency: which of several candidates an induction head prefers, and why."""

from functools import partial
from typing import Any

import streamlit as st

from pages.induction_recency import captions as words
from pages.induction_recency.sections import draw_cause, draw_patterns, draw_random, draw_recency
from pages.shared.cards.card import card
from pages.shared.experiments.random_controls import (
    Draws,
    choose_draws,
    choose_sequences,
    choose_switches,
    enough_context,
)
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.head_choice import offer_strongest
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import find
from poskernel_core.analyses.induction.figures import induction_figure
from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    InductionScores,
    InductionScoresParams,
    RecencyParams,
)
from poskernel_core.analyses.random_tokens.params import CLEAR_SAMPLES, RANDOM_TOKENS
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.plotting.shades import linear

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
    found = scores.only("induction")
    flat = found.values["induction"]
    order = sorted((-flat[i, j], i, j) for i in range(len(flat)) for j in range(flat.shape[1]))
    ranked = ", ".join(
        f"**{head_link(head_name(i, j))}** {value_text(found.select(layer=i, head=j), 'induction')}"
        for _, i, j in order[:SHOWN]
    )
    first, second = (value_text(scores.select(copy=copy), "loss") for copy in (1, 2))

    def draw() -> None:
        st.markdown(
            f"Strongest: {ranked}. Loss of the first half {first} nats, of the second {second}. "
            f"(Over {counted(scores.params['samples'], 'sequence')} of "
            f"{counted(scores.params['period'], 'token')} twice, without ablation.)"
        )
        texts = head_texts(found, "induction", "induction score")
        draw_heads(linear(flat), texts, "induction score", selection, "induction-grid")

    figure = partial(induction_figure, scores)
    card("induction", figure, scores, words.INDUCTION, "Induction heads", draw)


def draw_experiment(selection: Selection, draws: Draws, switches: dict[str, Any]) -> None:
    """Draw the experiment on sequences with several candidates."""
    geometry = selection.located.geometry
    st.subheader("Several candidates", anchor="candidates-of-a")
    sequences = choose_sequences(selection, draws)
    asked = RecencyParams(samples=draws.samples, **sequences, **switches)
    with st.container():  # so that widgets below keep their places
        recency = results.fetch(InductionRecency, draws.run, asked)
        if recency is not None:
            draw_recency(recency, selection)
            seconds = recency.coordinates["second"].tolist()
            draw_patterns(draws, sequences, switches, seconds, selection)
    st.subheader("Random tokens", anchor="random-tokens")
    with st.container():
        draw_random(draws, switches, selection, min(MAX_LENGTH, geometry.n_ctx))
    if st.toggle(
        "Compare with equalised norms of layer 0's head outputs", False, **linked("comparenorms")
    ):
        draw_cause(draws, sequences, switches, min(RANDOM_TOKENS, geometry.n_ctx), selection)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    geometry = selection.located.geometry
    if enough_context(selection):
        draws = choose_draws(selection, CLEAR_SAMPLES)
        switches = choose_switches(selection)
        params = find("induction-scores").default_params(draws.run, geometry)
        scores = results.fetch(InductionScores, draws.run, InductionScoresParams(**params))
        if scores is not None:
            draw_scores(selection, scores)
            offer_strongest(scores.values["induction"], selection, "induction head")
            draw_experiment(selection, draws, switches)
