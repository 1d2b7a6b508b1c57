"""What is drawn and said of ablated heads."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import number_of, param
from poskernel_core.analyses.pictures import draw_lines
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.heads import head_name, largest_first
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import mean_bars

MOST = 10
"""Heads whose change of the induction score is drawn."""
BY = {
    "mean": "with the mean output",
    "zero": "without the output",
    "resample": "with another text's output",
    "kernel": "with the kernel alone",
}


def _loss(result: Result) -> str:
    if not (change := number_of(result, "loss_change")).sign():
        return ""
    heads = len(set(str(param(result, "heads")).upper().replace(",", " ").split()))
    does, amount = "loses" if change.value > 0 else "gains", str(change).lstrip("−")
    by = BY[str(param(result, "by"))]
    return f"{by.capitalize()} of {counted(heads, 'head')}, the model {does} {amount} nats a token."


def _by_position(result: Result) -> go.Figure:
    rise, error = (part["position_loss_change"][1:] for part in (result.values, result.errors))
    x, unit = np.arange(1, len(rise) + 1), "rise of the loss ± 1 s.e. (nats)"
    return draw_lines(x, {"ablated": (rise, error)}, over="pos", unit=unit)


def _induction(result: Result) -> go.Figure:
    change, error = (part["induction_change"] for part in (result.values, result.errors))
    cells = largest_first(np.abs(change), MOST)
    names, places = [head_name(*cell) for cell in cells], tuple(np.transpose(cells))
    x_title = "change of the induction score ± 1 s.e."
    return mean_bars(names, change[places], error[places], title="", x_title=x_title)


VIEWS: Views = {
    "ablate-heads": (
        View("loss_change []", says=_loss),
        View(
            "position_loss_change [pos]",
            _by_position,
            "loss by position",
            reading="The rise of the loss at each position if these heads are ablated, over "
            "windows of text; clean and ablated runs are paired. The band is one standard error.",
            explains="loss_change",
        ),
        View(
            "induction_change [layer head]",
            _induction,
            "induction scores that change most",
            reading="Random tokens, repeated once: the heads whose induction score changes most. A "
            "head in a later layer that loses its score needs the ablated ones.",
            explains="copy_loss_change",
        ),
    )
}
