"""Figures of dilution and of longer contexts."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import Look, add_curve, curves
from poskernel_core.plotting.layout import (
    MUTED,
    legend_under_title,
    log_axis,
    log_offsets,
    style,
)
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION

OWN, SCALED = Look(BLUE), (Look(VERMILLION, "dash", "square"), Look(GREEN, "dashdot", "diamond"))
"""The model's own angles, and linear and YaRN scaling."""

FIRST = 12
"""Heads in the ranking of those that change most."""


def dilution_figure(head: Result) -> go.Figure:
    """Draw a head's ETC over its visible keys with both slopes."""
    keys, etc, error = head.values["visible_keys"], head.values["etc"], head.errors["etc"]
    figure, half = go.Figure(), len(keys) // 2
    add_curve(figure, keys, keys, None, name="all visible keys", look=Look(MUTED, "dot"),
              where="%{x:.0f} keys")  # fmt: skip
    for name, label, part, look in (
        ("alpha", "slope", slice(None), Look(VERMILLION, "dash")),
        ("alpha_upper", "slope, upper half", slice(half, None), Look(PURPLE, "dashdot")),
    ):
        slope = float(head.values[name])
        if np.isfinite(slope):
            away = np.log(keys[part]) - np.log(keys[part]).mean()
            line = np.exp(np.log(etc[part]).mean() + slope * away)
            add_curve(figure, keys[part], line, None, name=f"{label} {slope:.2f}", look=look,
                      where="%{x:.0f} keys")  # fmt: skip
    add_curve(figure, keys, etc, error, name="ETC ± 1 s.e.", look=Look(BLUE),
              where="%{x:.0f} visible keys", band=False)  # fmt: skip
    figure.update_traces(mode="lines", selector=lambda trace: trace.name != "ETC ± 1 s.e.")
    figure.update_traces(mode="markers", selector={"name": "ETC ± 1 s.e."})
    style(figure, x_title="visible keys (tokens, log scale)", y_title="ETC (tokens, log scale)")
    figure.update_xaxes(**log_axis(max(1.0, float(keys.min())), float(keys.max()) + 1))
    figure.update_yaxes(**log_axis(1.0, float(keys.max()) + 1))
    return legend_under_title(figure)


def kernels_figure(head: Result) -> go.Figure:
    """Draw a head's kernels by offset: own angles in all contexts, scaled ones in the longest."""
    factors, last = head.coordinates["factor"].tolist(), len(head.coordinates["factor"]) - 1
    shown = [(0, place) for place in range(last + 1)]
    shown += [(scaling, last) for scaling in range(1, len(head.words("scaling")))]
    names = head.words("scaling")
    kernel, error = (part["kernel"] for part in (head.values, head.errors))
    rows = {f"{names[i]} angles, {factors[j]} ×": (kernel[i, j], error[i, j]) for i, j in shown}
    offset = head.coordinates["offset"]
    looks = [Look(BLUE, dash) for dash in ("solid", "dash", "dot")[: last + 1]]
    figure = curves(
        offset + 1,
        rows,
        x_title="offset n − i (tokens, log scale)",
        y_title="probability per token",
        where="offset %{text}",
        looks=[*looks, *SCALED[: len(rows) - len(looks)]],
    )
    figure.update_traces(text=offset)
    figure.update_xaxes(**log_offsets(int(offset[-1])))
    return figure.update_yaxes(rangemode="tozero")


def ranking(found: Result) -> list[tuple[int, int]]:
    """Return the heads whose kernels change most in the longest context, whatever the angles."""
    distance = np.nan_to_num(found.values["distance"][..., -1].max(axis=2), nan=-1.0)
    order = np.argsort(-distance, axis=None, kind="stable")[:FIRST]
    every = [divmod(place, distance.shape[1]) for place in order.tolist()]
    return [cell for cell in every if distance[cell] >= 0]


def ranking_figure(found: Result) -> go.Figure:
    """Draw the heads whose kernels change most in the longest context, with each scaling."""
    cells, figure = ranking(found), go.Figure()
    for place, (name, look) in enumerate(zip(found.words("scaling"), (OWN, *SCALED), strict=False)):
        mean, error = (
            [float(part["distance"][(*cell, place, -1)]) for cell in cells]
            for part in (found.values, found.errors)
        )
        figure.add_bar(
            x=mean,
            y=[head_name(*cell) for cell in cells],
            orientation="h",
            name=f"{name} angles",
            marker_color=look.colour,
            error_x={"array": error, "thickness": 1.5},
            hovertemplate="<b>%{y}</b><br>%{x:.3g} ± %{error_x.array:.2g}<extra></extra>",
        )
    style(figure, x_title="TV distance", y_title="", height=140 + 40 * len(cells))
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return legend_under_title(figure)


def loss_figure(found: Result) -> go.Figure:
    """Draw the loss by position in the longest context, with each scaling."""
    loss, error = (part["loss"][:, -1] for part in (found.values, found.errors))
    rows = {
        f"{name} angles": (loss[place], error[place])
        for place, name in enumerate(found.words("scaling"))
    }
    position = found.coordinates["position"]
    figure = curves(
        position,
        rows,
        x_title="position (tokens)",
        y_title="loss (nats)",
        where="up to position %{x}",
        looks=[OWN, *SCALED],
    )
    length = float(found.params["length"])
    figure.add_vline(length, line={"color": MUTED, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=length, y=1, yref="paper", text="length", showarrow=False, xanchor="left", xshift=4
    )
    return figure
