"""Results on contextual heads and neurons -> the figure that ``show --html`` writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from pages.parts.figures.additivity import shares_figure
from pages.parts.figures.bag import latents_figure, nearest_figure, scores_figure
from pages.parts.figures.contextual import (
    denominators_figure,
    distances_figure,
    plane_figure,
    weights_figure,
)
from pages.parts.figures.neurons import contributions_figure, neurons_figure, trace_figure
from poskernel_core.analyses.base import Result

__all__ = ["FIGURES", "ONE_HEAD"]

ONE_HEAD = {
    "contextual-heads": "copy_attention",
    "kernel-distances": "distance",
    "additivity": "content_cosine",
}
"""The value that is drawn of one head."""


def _plane(heads: Result) -> go.Figure:
    """All heads; the steadiest of the broad ones is named."""
    spread = np.where(heads.values["etc"] >= heads.params["broad"], heads.values["spread"], np.inf)
    layer, head = np.unravel_index(int(np.nanargmin(spread)), spread.shape)
    limits = float(heads.params["broad"]), float(heads.params["steady"])
    return plane_figure(heads, int(layer), int(head), *limits)


def _shares(found: Result) -> go.Figure:
    """The layer whose keys depend on position most."""
    return shares_figure(found, int(np.argmax(found.values["position_share"].mean(axis=1))))


def _distances(found: Result) -> go.Figure:
    """The layer whose heads differ most."""
    return distances_figure(found, int(np.argmax(found.values["distance"].mean(axis=(1, 2)))))


def _neurons(found: Result) -> go.Figure:
    """All neurons; the one that the bag drives most is ringed."""
    return neurons_figure(found, int(found.values["drive_share"].argmax()), "drive_share")


FIGURES: dict[str, Callable[[Result], go.Figure]] = {
    "contextual-heads": _plane,
    "denominators": denominators_figure,
    "token-weights": weights_figure,
    "kernel-distances": _distances,
    "additivity": _shares,
    "contextual-neurons": _neurons,
    "neuron": contributions_figure,
    "neuron-trace": lambda trace: trace_figure(trace, True),
    "neuron-latents": latents_figure,
    "extended-embedding": nearest_figure,
    "word-neurons": scores_figure,
}
