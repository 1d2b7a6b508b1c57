"""Results on contextual heads and neurons -> the figure that ``show --html`` writes."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.figures.additivity import shares_figure
from poskernel_core.figures.by_axes import by_axes
from poskernel_core.figures.contextual import (
    distances_figure,
    plane_figure,
)
from poskernel_core.figures.neurons import neurons_figure, trace_figure

__all__ = [
    "additivity_figure",
    "contextual_heads_figure",
    "contextual_neurons_figure",
    "kernel_distances_figure",
    "neuron_trace_figure",
]


def contextual_heads_figure(heads: Result) -> go.Figure:
    """All heads; the steadiest of the broad ones is named; of one head, its own."""
    if "layer" not in heads.axes["duplicate_attention"]:
        return by_axes(heads.only("duplicate_attention"))
    spread = heads.values["denominator_cv"]
    narrow = heads.values["etc"] < heads.params["broad"]
    order = spread + narrow * (1 + np.nanmax(spread))  # narrow ones only where none is broad
    layer, head = np.unravel_index(int(np.nanargmin(order)), order.shape)
    limits = float(heads.params["broad"]), float(heads.params["steady"])
    return plane_figure(heads, int(layer), int(head), *limits)


def additivity_figure(found: Result) -> go.Figure:
    """The layer whose keys depend on position most; of one head, its own."""
    if "layer" not in found.axes["content_similarity"]:
        return by_axes(found.only("content_similarity"))
    shares = np.nan_to_num(found.values["position_share"], nan=-1.0)
    return shares_figure(found, int(shares.mean(axis=1).argmax()))


def kernel_distances_figure(found: Result) -> go.Figure:
    """The layer whose heads differ most; of one head, its own."""
    if "layer" not in found.axes["distance"]:
        return by_axes(found.only("distance"))
    distance = np.nan_to_num(found.values["distance"], nan=-1.0)
    return distances_figure(found, int(distance.mean(axis=(1, 2)).argmax()))


def contextual_neurons_figure(found: Result) -> go.Figure:
    """All neurons; the one that the bag drives most is ringed."""
    return neurons_figure(found, int(np.nanargmax(found.values["drive_share"])), "drive_share")


def neuron_trace_figure(trace: Result) -> go.Figure:
    """One neuron along a text, with the parts of the prediction."""
    return trace_figure(trace, True)
