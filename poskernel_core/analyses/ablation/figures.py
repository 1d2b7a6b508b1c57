"""What ablated heads cost, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import has
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import set_title

MOST = 10
"""Heads whose change of the induction score is drawn."""


def ablated_figure(result: Result) -> go.Figure:
    """Draw the rise of the loss at every position."""
    if not has(result, ("pos",), "position_loss_change"):
        return by_axes(result)
    name = "position_loss_change"
    rise, error = result.values[name][1:], result.errors[name][1:]
    figure = curves(
        np.arange(1, len(rise) + 1), {"ablated": (rise, error)},
        x_title="position (tokens)", y_title="rise of the loss (nats)", where="position %{x}",
    )  # fmt: skip
    return set_title(figure.update_layout(showlegend=False), "Loss by position")


def induction_change_figure(result: Result) -> go.Figure:
    """Draw the heads whose induction score changes most, as bars."""
    change, error = (part["induction_change"] for part in (result.values, result.errors))
    order = np.argsort(-np.abs(np.nan_to_num(change)), axis=None, kind="stable")[:MOST]
    names = [head_name(*divmod(int(place), change.shape[1])) for place in order]
    return mean_bars(
        names, change.ravel()[order], error.ravel()[order],
        title="Induction scores that change most",
        x_title="change of the induction score ± 1 s.e.",
    )  # fmt: skip
