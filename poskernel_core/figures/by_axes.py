"""Any result as a figure, by the axes of its main value."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.figures.layout import set_title, style

MAIN = ("log_etc", "kernel", "profile")


def by_axes(result: Result) -> go.Figure:
    """A curve for every index of the other axes, over the last axis of the main value."""
    name = next((n for n in MAIN if n in result.values), next(iter(result.values)))
    value, axes = np.atleast_1d(result.values[name]), result.axes[name] or ("",)
    last = result.coordinates.get(axes[-1], np.arange(value.shape[-1]))
    rows = value.reshape(-1, value.shape[-1])
    labels = [
        "L{}H{}".format(*i[:2]) if len(i) > 1 else str(i[0]) if i else name
        for i in np.ndindex(value.shape[:-1])
    ]
    figure = go.Figure()
    for label, row in zip(labels, rows, strict=True):
        figure.add_scatter(
            x=last, y=row, name=label, mode="lines+markers" if len(row) < 40 else "lines"
        )
    unit = result.units[name]
    style(figure, x_title=f"{axes[-1]}", y_title=f"{name} ({unit})", height=520)
    return set_title(figure, f"{name} of {result.provenance['model']}")
