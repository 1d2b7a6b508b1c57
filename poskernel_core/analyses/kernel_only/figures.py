"""What heads that attend by position alone cost, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import has, who
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE

COST = "cost ± 1 s.e. (nats per token)"
SHOWN = {0: ("estimate", MUTED, "circle-open"), 1: ("exact", BLUE, "circle")}


def replacements_figure(head: Result) -> go.Figure:
    """Draw what the model loses with each replacement of one head, as bars."""
    if not has(head, ("replacement",), "cost"):
        return by_axes(head)
    how = f" ({head.text_of('exact')})" if "exact" in head.values else ""
    title = f"{who(head)}: what the model loses{how}"
    return mean_bars(
        head.words("replacement"), head.values["cost"], head.errors["cost"],
        title=title, x_title=COST,
    )  # fmt: skip


def cost_figure(result: Result) -> go.Figure:
    """Draw the costs of all heads against what they give the model; or those of one head."""
    if not has(result, ("layer", "head"), "kernel_only_cost", "exact", "cost"):
        return replacements_figure(result)
    cost, error = (part["kernel_only_cost"] for part in (result.values, result.errors))
    gives, exact = result.values["cost"][-1], result.values["exact"]
    figure = go.Figure()
    for code, (name, colour, symbol) in SHOWN.items():
        shown = (exact == code) & np.isfinite(cost)
        figure.add_scatter(
            x=gives[shown],
            y=cost[shown],
            error_y={"array": error[shown], "thickness": 1, "width": 0, "color": colour},
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 7},
            text=[head_name(*cell) for cell in np.argwhere(shown).tolist()],
            hovertemplate="<b>%{text}</b><br>kernel alone %{y:.3g} ± %{error_y.array:.2g}<br>"
            "mean output %{x:.3g}<extra></extra>",
        )
    most = float(np.nanmax(gives, initial=0.0))
    figure.add_shape(
        type="line", x0=0, y0=0, x1=most, y1=most, line={"color": MUTED, "width": 1, "dash": "dot"}
    )
    style(figure, x_title="cost of its mean output (nats per token)", y_title=f"kernel's {COST}")
    return set_title(legend_under_title(figure), "Cost of attending by the kernel alone")


def replaced_figure(result: Result) -> go.Figure:
    """Draw the rise of the loss against the number of heads that attend by position alone."""
    if not has(result, ("pattern", "heads"), "loss_change"):
        return by_axes(result)
    pairs = zip(result.values["loss_change"], result.errors["loss_change"], strict=True)
    figure = curves(
        result.coordinates["heads"], dict(zip(result.words("pattern"), pairs, strict=True)),
        x_title="heads replaced, smallest cost first", y_title="rise of the loss (nats per token)",
        where="%{x} heads",
    )  # fmt: skip
    return set_title(figure, "Loss with heads attending by position alone")
