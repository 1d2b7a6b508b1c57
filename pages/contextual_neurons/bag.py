"""The cards on the bag of tokens: how well it predicts, and tokens' extended embeddings."""

from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.shared.cards.figure import chart
from pages.shared.cards.plain import say
from pages.shared.cards.show import show
from pages.shared.choices.choices import chosen
from pages.shared.choices.fit import choose_one, fitted_text
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import linked_table, number_columns
from poskernel_core.analyses.bag.contextual_neurons import centred_at_best
from poskernel_core.analyses.bag.neuron import ExtendedEmbedding, ExtendedEmbeddingParams
from poskernel_core.analyses.bag.views import LOW
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.layout import visible

JUDGED = {"R², centred": "bag_centred_r2", "R²": "bag_r2", "cosine": "bag_cosine"}
NORMS = ("before attention", "before the MLP")


def say_how_well(result: Result) -> None:
    """Warn if the bag hardly predicts the heads that fill it."""
    best = centred_at_best(result)
    if best < LOW:
        say(
            "The bag hardly predicts the output of these heads: its centred R² is "
            f"{as_printed(f'{best:.2f}')} at best, median over positions (1 is perfect). So this "
            "page shows what the weights add for each token, but little of what the neurons do on "
            "a text."
        )


def draw_bag(result: Result) -> None:
    """Draw the heads of the bag, the scales of the norms, and the quality of its predictions."""
    heads = result.words("heads")
    medians = ", ".join(as_printed(f"{value:.2f}") for value in result.values["denominator"])
    st.markdown(
        f"**The bag is filled by {', '.join(heads)}** (median denominators {medians}).",
        help="denominators of the destination token, median over windows",
    )
    low, _, middle, _, high = (result.values["norm_scale"][:, i] for i in range(5))
    st.markdown(
        "Standard deviations by which the norms divide, over windows and positions: "
        + "; ".join(
            f"{name} {middle[i]:.3g} (from {low[i]:.3g} to {high[i]:.3g})"
            for i, name in enumerate(NORMS)
        )
        + "."
    )
    left, right = st.columns([3, 2])
    with left:
        draw_quality(result)
    show("bag-kernel", result.only("kernel", "heads"), "How long tokens stay", column=right)


def draw_quality(result: Result) -> None:
    """Draw how well the bag predicts its heads, by position."""
    quality = result.only(*JUDGED.values())

    def draw() -> None:
        help_text = (
            "centred: the mean over windows is subtracted, so a constant offset does not count"
        )
        judged = choose_one("Judged by", JUDGED, "judged", help=help_text)
        chart("quality", partial(figure_of, quality, value=JUDGED[judged]))

    def figure() -> go.Figure:
        return figure_of(quality, value=JUDGED[chosen("judged")])

    show("quality", quality, "The bag against the heads' output", draw, figures={"": figure})


def draw_embedding(selection: Selection, shared: dict[str, Any]) -> None:
    """Draw the tokens whose extended embeddings are nearest to a token's."""
    st.subheader("Extended embeddings", anchor="extended-embeddings")
    word = st.text_input(
        "Tokens near the token",
        placeholder="exactly one token, such as ␣server with its leading space",
        help="its extended embedding is compared with those of all tokens",
        **fitted_text("nearword", most=64),
    )
    if not word:
        st.caption("Type a token to see the tokens with the most similar extended embeddings.")
        return
    params = ExtendedEmbeddingParams(word=word, **shared)
    result = results.fetch(ExtendedEmbedding, selection.run, params)
    if result is None:
        return

    def draw() -> None:
        st.markdown(
            f"Norm {float(result.values['length']):.3g}, larger than that of "
            f"{100 * float(result.values['length_rank']):.1f} % of the tokens."
        )
        table = pd.DataFrame(
            {
                "token": [visible(token) for token in result.texts["words"]],
                "extended": result.values["cosine"],
                "plain embedding": result.values["plain_cosine"],
            }
        )
        columns = number_columns(dict.fromkeys(table.columns[1:], "cosine"), "%.3f")
        linked_table(table, "near-table", columns)

    show("near", result, f"Tokens near {visible(word)}", draw)
