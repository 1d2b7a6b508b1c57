"""Attention that can be foreseen, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.foreseen.formulas import ENOUGH, FIXED, WAYS
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import log_axis


def foreseen_figure(found: Result) -> go.Figure:
    """Draw one head's captured attention against the number of keys, a curve for each way."""
    if found.axes["captured"] != ("way", "budget"):
        return by_axes(found)
    budgets = found.coordinates["budget"]
    figure = curves(
        budgets,
        {
            way: (found.values["captured"][place], found.errors["captured"][place])
            for place, way in enumerate(WAYS)
        },
        x_title="keys chosen beforehand (tokens)",
        y_title="share of the mean attention",
        where="%{x} keys",
    )
    figure.add_hline(y=ENOUGH, line_dash="dot", line_width=1, opacity=0.6)
    figure.update_xaxes(log_axis(1, float(budgets[-1])))
    return figure.update_yaxes(range=[0, 1.02])


def cache_figure(found: Result) -> go.Figure:
    """Draw by layer how large a cache captures 0.95 of the attention, picked in two ways."""
    names = {"by kernel": "cache_for_95", WAYS[FIXED]: "fixed_cache_for_95"}
    figure = curves(
        np.arange(len(found.values["cache_for_95"])),
        {way: (found.values[name], found.errors[name]) for way, name in names.items()},
        x_title="layer",
        y_title="cache (share of visible keys)",
        where="layer %{x}",
    )
    return figure.update_yaxes(range=[0, 1.02])
