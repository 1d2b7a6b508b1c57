"""Induction recency: which of several candidates an induction head prefers, and why."""

from __future__ import annotations

from functools import partial
from typing import cast

import streamlit as st

from pages.parts import results
from pages.parts import words_experiments as words
from pages.parts.cards import card
from pages.parts.contents import contents_here
from pages.parts.experiment_controls import (
    choose_draws,
    choose_sequences,
    choose_switches,
    enough_context,
)
from pages.parts.figures.of_experiments import induction_figure
from pages.parts.head_choice import HeadChoice, choose_head
from pages.parts.measure_grid import draw_measure_grid
from pages.parts.recency_cards import draw_cause, draw_patterns, draw_random, draw_recency
from pages.parts.selection import Selection
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name
from poskernel_core.precomputed import PERIOD, RANDOM_TOKENS, SAMPLES
from poskernel_core.rounding import value_text

selection = cast(Selection, st.session_state["selection"])
geometry = selection.located.geometry
MOST = 1000
SHOWN = 5


def draw_heads(scores: Result) -> None:
    """Draw the induction scores of all heads, and name the strongest."""
    found = scores.only("induction")
    flat = found.values["induction"]
    order = sorted((-flat[i, j], i, j) for i in range(len(flat)) for j in range(flat.shape[1]))
    ranked = ", ".join(
        f"**{cell_name(i, j)}** {value_text(found.select(layer=i, head=j), 'induction')}"
        for _, i, j in order[:SHOWN]
    )
    first, second = (value_text(scores.select(copy=copy), "loss") for copy in (1, 2))

    def draw() -> None:
        st.markdown(
            f"Strongest: {ranked}. Loss of the first copy {first} nats, of the second {second}. "
            f"(Over {scores.params['samples']} sequences of {scores.params['period']} tokens "
            "twice, nothing switched off.)"
        )
        draw_measure_grid(found, "induction", "induction score", selection, "induction-grid")

    card("induction", partial(induction_figure, scores), scores, words.INDUCTION,
         "Induction heads", draw)  # fmt: skip


def draw_experiment(head: HeadChoice) -> None:
    """Draw the experiment on sequences with several candidates."""
    st.subheader("Several candidates", anchor="candidates-of-a")
    params = choose_sequences(selection, draws) | switches
    recency = results.fetch("induction-recency", draws.run, samples=draws.samples, **params)
    if recency is not None:
        draw_recency(recency, head)
        draw_patterns(draws, params, recency.coordinates["second"].tolist(), head,
                      geometry.n_layers)  # fmt: skip
    st.subheader("Random tokens", anchor="random-tokens")
    draw_random(draws, switches, head, min(MOST, geometry.n_ctx))
    if st.toggle("Make layer 0's norms flat and compare", False, key="cause", bind="query-params"):
        draw_cause(draws, params, min(RANDOM_TOKENS, geometry.n_ctx), head)


st.title("Induction recency")
contents_here()
st.markdown(
    "A token [A] stood twice before, followed by [B] and later by [C]: which one does an induction "
    "head predict? Sequences are random tokens, so the corpus in the sidebar plays no part."
)
if enough_context(selection):
    draws = choose_draws(selection, SAMPLES)
    switches = choose_switches(selection)
    period = min(PERIOD, (geometry.n_ctx - 1) // 2)
    scores = results.fetch("induction-scores", draws.run, period=period)
    if scores is not None:
        draw_heads(scores)
        draw_experiment(choose_head(scores.values["induction"], selection, "induction head"))
