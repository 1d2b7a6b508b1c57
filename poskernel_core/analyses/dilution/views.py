"""What is drawn and said of dilution and of longer contexts."""

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    HALF,
    SCALE,
    Claim,
    Head,
    heads_at,
    number_of,
    of_all,
    param,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.heads import head_name, largest_first
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.curves import Look, add_curve, curves
from poskernel_core.plotting.layout import MUTED, legend_under_title, log_axis, log_offsets, style
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION

KEEPS, SPREADS = 0.25, 0.75
"""Slopes of log ETC on log keys: below the first a head keeps its reach, from the second on it
spreads over all visible keys."""

ALIKE = 0.1
"""Distance below which kernels count as nearly the same."""


def reach(head: Head) -> Iterator[Claim]:
    """Yield whether a kernel keeps its reach, or spreads over all visible keys."""
    slope, upper = (head.number(name) for name in ("alpha", "alpha_upper"))
    keeps = {slope.passes(KEEPS), upper.passes(KEEPS)} == {"no"}
    if keeps or {slope.passes(SPREADS), upper.passes(SPREADS)} == {"yes"}:
        does = "keeps its reach" if keeps else "spreads over all there is"
        text = f"{{it}} {does} as more keys become visible: the slopes are {slope} and {upper}"
        yield Claim("reach", f"{text} (upper half)", slope)


def _head(result: Result) -> str:
    reason = str(result.texts.get("no_slope", "")) if np.isnan(result.values["alpha"]) else ""
    return spoken(reach)(result) or (f"{who(result)} has no slope: {reason}." if reason else "")


def _heads(result: Result) -> str:
    at = result.provenance.get("query_range")
    start = f"From n = {at[0]} to {at[1]}" if at else "As more keys become visible"
    slopes = "alpha", "alpha_upper"
    keep = discovered(result, *(Condition(name, KEEPS, "below") for name in slopes)).count
    spread = discovered(result, *(Condition(name, SPREADS) for name in slopes)).count
    known = int(np.isfinite(result.values["alpha"]).sum())
    if not keep and not spread:
        return ""
    return (
        f"{start}, both slopes are below {KEEPS:g} in "
        f"{of_all(keep, known).lower()}, which keep their reach, and {SPREADS:g} or more in "
        f"{spread or 'none'}, which spread over all there is."
    )


def _length(result: Result) -> str:
    return counted(param(result, "length"), "token")


def _longer(result: Result) -> str:
    number = number_of(result, "longest_distance")
    how = "another kernel" if number.passes(HALF) == "yes" else ""
    how = "nearly the same kernel" if number.passes(ALIKE) == "no" else how
    if not how:
        return ""
    return (
        f"In the longest context, with its own angles, {who(result)} has {how}: {number} from "
        f"that at {_length(result)} ({SCALE})."
    )


def _all_longer(result: Result) -> str:
    at = _length(result)
    noun = f"distance of the kernel in the longest context (own angles) to that at {at}"
    return heads_at(result, "longest_distance", noun, ALIKE)


def _loss(result: Result) -> str:
    last = result.values["loss_change"].shape[1] - 1
    changes = {
        name: number_of(result, "loss_change", place, last)
        for place, name in enumerate(result.words("scaling"))
    }
    said = [
        f"{number.value:+.2g} nats ({name} angles)"
        for name, number in changes.items()
        if number.passes(0) in ("yes", "no")
    ]
    if not said:
        return ""
    return (
        f"The loss of the same last tokens, in the longest context against one of "
        f"{_length(result)}: {', '.join(said)}."
    )


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
            text = f"{label} {number_of(head, name)}"
            add_curve(figure, keys[part], line, None, name=text, look=look, where="%{x:.0f} keys")
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
    drawn = [(0, place) for place in range(last + 1)]
    drawn += [(scaling, last) for scaling in range(1, len(head.words("scaling")))]
    names = head.words("scaling")
    kernel, error = (part["kernel"] for part in (head.values, head.errors))
    rows = {f"{names[i]} angles, {factors[j]} ×": (kernel[i, j], error[i, j]) for i, j in drawn}
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


def ranking(result: Result) -> list[tuple[int, int]]:
    """Return the heads whose kernels change most in the longest context, whatever the angles."""
    return largest_first(result.values["distance"][..., -1].max(axis=2), FIRST)


def ranking_figure(result: Result) -> go.Figure:
    """Draw the heads whose kernels change most in the longest context, with each scaling."""
    cells, figure = ranking(result), go.Figure()
    for place, (name, look) in enumerate(
        zip(result.words("scaling"), (OWN, *SCALED), strict=False)
    ):
        mean, error = (
            [float(part["distance"][(*cell, place, -1)]) for cell in cells]
            for part in (result.values, result.errors)
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


def loss_figure(result: Result) -> go.Figure:
    """Draw the loss by position in the longest context, with each scaling."""
    loss, error = (part["loss"][:, -1] for part in (result.values, result.errors))
    rows = {
        f"{name} angles": (loss[place], error[place])
        for place, name in enumerate(result.words("scaling"))
    }
    position = result.coordinates["position"]
    figure = curves(
        position,
        rows,
        x_title="position (tokens)",
        y_title="loss (nats)",
        where="up to position %{x}",
        looks=[OWN, *SCALED],
    )
    length = float(result.params["length"])
    figure.add_vline(length, line={"color": MUTED, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=length, y=1, yref="paper", text="length", showarrow=False, xanchor="left", xshift=4
    )
    return figure


VIEWS: Views = {
    "dilution": (
        View("alpha alpha_upper []", says=_head),
        View(
            "etc visible_keys [query], alpha alpha_upper []",
            dilution_figure,
            "effective token count over its visible keys",
            reading="Points: the kernel's effective token count at query positions with more and "
            "more visible keys, both on log axes. A head that keeps its reach has a flat curve "
            "(slope 0), a head that spreads over all keys follows the dotted line (slope 1). The "
            "dashed lines are fitted to all points and to the upper half; where they differ, the "
            "curve bends. A flat curve does not mean that the head ignores far tokens: content may "
            "still lead it there. Bars are one standard error.",
        ),
        View("alpha alpha_upper [layer head]", says=_heads),
    ),
    "longer-contexts": (
        View("longest_distance []", says=_longer),
        View(
            "kernel [scaling factor offset]",
            kernels_figure,
            "kernel in longer contexts",
            reading="The selected head's kernel over the same offsets, at the end of contexts of "
            "different lengths. All contexts end with the same tokens, so curves differ only by "
            "position and by what stands before. Own angles: the model as it is. Linear: all "
            "angles divided by the factor. YaRN: only slow pairs are slowed down, and scores are "
            "sharpened. A kernel that moves does not show that the head's task fails. Bands are "
            "one standard error.",
            explains="distance",
        ),
        View("longest_distance [layer head]", says=_all_longer),
        View(
            "distance [layer head scaling factor]",
            ranking_figure,
            "Heads whose kernels change most",
            reading="The heads whose kernel changes most in the longest context, with any of the "
            "angles: the distance to the kernel at the shortest length, from 0 (the same) to 1 (no "
            "overlap).",
            explains="longest_distance",
        ),
        View("loss_change [scaling factor]", says=_loss),
        View(
            "loss [scaling factor position]",
            loss_figure,
            "Loss by position in the longest context",
            reading="Mean loss along the longest context, in steps of an eighth of the length; the "
            "dotted line is the length itself. Own angles left of it are the model as trained. A "
            "rise to the right of it that scaled angles do not have comes from positions that the "
            "model has not seen. Texts differ in difficulty along the way, and a new document "
            "makes a step in all curves, so compare curves rather than places.",
            explains="loss_change",
        ),
    ),
}

CLAIMS = {"dilution": (reach,)}
