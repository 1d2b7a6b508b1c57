"""What is drawn and said of heads that attend by position alone."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    at_limit,
    number_of,
    of_all,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.pictures import lines
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.heads import head_name
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.layout import MUTED, legend_under_title, style
from poskernel_core.plotting.palette import BLUE

COSTS = 0.01
"""Smallest cost, in nats a token, that counts."""

COST = "cost ± 1 s.e. (nats per token)"
SHOWN = {0: ("estimate", MUTED, "circle-open"), 1: ("exact", BLUE, "circle")}


def _bars(head: Result) -> go.Figure:
    how = f" ({head.text_of('exact')})" if "exact" in head.values else ""
    return mean_bars(
        head.words("replacement"), head.values["cost"], head.errors["cost"],
        title=f"{who(head)}: what the model loses{how}", x_title=COST,
    )  # fmt: skip


def _against_output(result: Result) -> go.Figure:
    """Draw the costs of all heads against what they give the model."""
    cost, error = (part["kernel_only_cost"] for part in (result.values, result.errors))
    gives, exact = result.values["cost"][-1], result.values["exact"]
    figure = go.Figure()
    for code, (name, colour, symbol) in SHOWN.items():
        drawn = (exact == code) & np.isfinite(cost)
        figure.add_scatter(
            x=gives[drawn],
            y=cost[drawn],
            error_y={"array": error[drawn], "thickness": 1, "width": 0, "color": colour},
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 7},
            text=[head_name(*cell) for cell in np.argwhere(drawn).tolist()],
            hovertemplate="<b>%{text}</b><br>kernel alone %{y:.3g} ± %{error_y.array:.2g}<br>"
            "mean output %{x:.3g}<extra></extra>",
        )
    most = float(np.nanmax(gives, initial=0.0))
    figure.add_shape(
        type="line", x0=0, y0=0, x1=most, y1=most, line={"color": MUTED, "width": 1, "dash": "dot"}
    )
    style(figure, x_title="cost of its mean output (nats per token)", y_title=f"kernel's {COST}")
    return legend_under_title(figure)


def _costs(result: Result) -> str:
    exact = result.values["exact"] == 1
    costs = Estimate(*(part[exact] for part in result.estimate_of("kernel_only_cost")))
    sure = discovered(result, Condition(costs, COSTS))
    if not sure.count and sure.open.all():
        return ""
    many = of_all(sure.count, costs.value.size, "exact cost", sure.beside)
    verb = "is" if sure.count == 1 else "are"
    return f"{many} of the kernel alone {verb} {COSTS:g} nats a token or more."


def kept(head: Head) -> Iterator[Claim]:
    """Yield what a head's kernel keeps of what the head gives the model, if that is exact."""
    if head.word("exact") == "estimate" or not head.has("kernel_only_share", "kernel_only_cost"):
        return
    share, cost = head.number("kernel_only_share"), head.number("kernel_only_cost")
    text = (
        f"{{its}} kernel alone keeps {share} of what the head gives the model, "
        f"at a cost of {cost} nats a token"
    )
    yield from at_limit("kernel alone", share, HALF, text, "position carries its effect")


def _cost(result: Result) -> str:
    if share := spoken(kept)(result):
        return share
    cost = number_of(result, "kernel_only_cost")
    if Head(result).word("exact") == "estimate" or not cost.sign():
        return ""
    does, amount = "loses" if cost.value > 0 else "gains", str(cost).lstrip("−")
    return f"If {who(result)} attends by its kernel alone, the model {does} {amount} nats a token."


def _replaced(result: Result) -> str:
    total, parts = int(result.coordinates.get("heads", [0])[-1]), []
    for name in ("heads_for_tenth", "heads_for_5_percent"):
        number = number_of(result, name, 0)
        if not total or not np.isfinite(number.low + number.high):
            return ""
        low, high = (round(min(max(0.0, end), total)) for end in (number.low, number.high))
        parts.append(f"{low} to {high}" if low < high else f"{low}")
    return (
        f"For 0.1 nats a token, {parts[0]} of {counted(total, 'head')} can attend by their kernels "
        f"alone; for 5 % of the loss, {parts[1]} (95 % intervals)."
    )


LOSES = (
    "What the model loses, in nats a token, if something that is the same for every text takes the "
    "head's place. If the first bar is much shorter than the last, position carries what the head "
    "gives. A bar below 0: the model is better without."
)

VIEWS: Views = {
    "kernel-only-cost": (
        View(
            "cost [replacement]",
            _bars,
            reading=f"{LOSES} An estimate can be several times too large; the Kernel page computes "
            "it exactly.",
            explains="kernel_only_share",
        ),
        View("kernel_only_cost []", says=_cost),
        View(
            "kernel_only_cost exact [layer head], cost [replacement layer head]",
            _against_output,
            "Cost of attending by the kernel alone",
            reading="Every head. On the dotted line the kernel is no better than the head's mean "
            "output: content carries its effect. Near 0 in height, position carries it.",
        ),
        View("kernel_only_cost exact [layer head]", says=_costs),
    ),
    "kernel-only-head": (
        View("cost [replacement]", _bars, reading=LOSES, explains="kernel_only_share"),
        View("kernel_only_cost []", says=_cost),
    ),
    "heads-replaced": (
        View(
            "loss_change [pattern heads]",
            partial(lines, name="loss_change", over="heads", by="pattern"),
            "Loss with heads attending by position alone",
            reading="More and more heads attend by position alone. Where the curves go together, "
            "kernels are as good as mean patterns, the best fixed ones that can be named. Bands "
            "are one standard error.",
            explains="heads_for_tenth heads_for_5_percent",
        ),
        View("heads_for_tenth heads_for_5_percent [pattern]", says=_replaced),
    ),
}

CLAIMS = {"kernel-only-cost": (kept,)}
