"""What is drawn and said of comparisons of heads, and of measures by depth."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import SCALE as VARIATION
from poskernel_core.analyses.claims import Number, amount, number_of, of_all, pairs_apart, param
from poskernel_core.analyses.comparison.pins import read_pins
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.kernels.distances import KernelDistancesParams
from poskernel_core.analyses.kernels.etc import EtcParams
from poskernel_core.analyses.kernels.formulas import LOCAL_TOKENS
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import add_by_offset, add_curve, look
from poskernel_core.plotting.layout import (
    FLOOR,
    legend_under_title,
    log_axis,
    log_offsets,
    set_title,
    style,
)
from poskernel_core.plotting.palette import SCALE, ink_on, scale_hex


def _kernels(result: Result) -> str:
    limits = KernelDistancesParams()
    if len(labels := pin_labels(result)) != 2:
        return pairs_apart(result, limits.alike, limits.apart, "heads")
    distance = number_of(result, "distance", 0, 1)
    text = f"The kernels of {labels[0]} and {labels[1]} are {distance} apart ({VARIATION})"
    if distance.passes(limits.apart) == "yes":
        return f"{text}, more than {limits.apart:g}."
    return f"{text}, less than {limits.alike:g}." * (distance.passes(limits.alike) == "no")


def _local(result: Result) -> str:
    """Say how many kernels have most of their mass on the last tokens.

    Errors of the entries need not be independent, so they are added up.
    """
    limit, near = EtcParams().local_share, np.s_[:, :LOCAL_TOKENS]
    mass = np.nansum(result.values["kernel"][near], axis=1)
    wrong = result.errors["kernel"][near]
    error = np.where(np.isfinite(result.values["kernel"][near]), wrong, 0.0).sum(axis=1)
    known = np.isfinite(result.values["kernel"]).any(axis=1)
    mass, reach = mass[known], result.interval * error[known]
    sure = discovered(result, Condition(Estimate(mass, mass - reach, mass + reach), limit))
    if not known.any() or not (sure.count or (mass + reach < limit).all()):
        return ""
    local, beside = sure.count, sure.beside
    labels = np.array(pin_labels(result), dtype=object)[known]
    most = int(np.argmax(mass))
    return (
        f"{of_all(local, len(mass), 'kernel', beside)} {'have' if local > 1 else 'has'} {limit:g} "
        f"or more of the mass in the last {counted(LOCAL_TOKENS, 'token')}; that of "
        f"{labels[most]} has most, {Number.within(float(mass[most]), float(reach[most]))}."
    )


def _measures(result: Result) -> str:
    labels, scores = pin_labels(result), result.values["z_score"][:, 1:].astype(float)
    reach = np.where(np.isfinite(scores), result.interval, np.nan)  # a score has an error of 1
    every = Estimate(scores, scores - reach, scores + reach)
    known = int(np.isfinite(scores).sum())
    if not (differ := discovered(result, Condition(every, 0, "apart")).count):
        return ""
    others = labels[1] if len(labels) == 2 else f"the {len(labels) - 1} other heads"
    of = counted(known, "measure" if len(labels) == 2 else "measured difference")
    return f"In {differ} of {of} {others} and {labels[0]} differ by more than their errors."


def _depth(result: Result) -> str:
    mean = result.values["mean"]
    if not np.isfinite(mean).any() or np.nanmax(mean) == np.nanmin(mean):
        return ""
    large, small = (
        f"layer {place} ({amount(mean[place], result.units['mean'])})"
        for place in (int(np.nanargmax(mean)), int(np.nanargmin(mean)))
    )
    measure = param(result, "measure")
    return f"The mean {measure} of a layer is largest in {large} and smallest in {small}."


def pin_labels(result: Result) -> list[str]:
    """Return the pins' labels, without models and settings if all share them."""
    pins = [read_pins(text)[0] for text in result.words("heads")]
    settings = {(pin.model, pin.settings) for pin in pins}
    return [pin.cell if len(settings) == 1 else pin.label for pin in pins]


def short_labels(result: Result) -> list[str]:
    """Return the heads' names, numbered where two are equal."""
    cells = [read_pins(text)[0].cell for text in result.words("heads")]
    return [
        cell if cells.count(cell) == 1 else f"{cell} ({cells[: place + 1].count(cell)})"
        for place, cell in enumerate(cells)
    ]


def distances_figure(result: Result) -> go.Figure:
    """Draw the distances between pinned heads as a square map, with errors written in."""
    labels, long = short_labels(result), pin_labels(result)
    gap, error = result.values["distance"], result.errors["distance"]
    figure = go.Figure().add_heatmap(
        z=gap,
        x=labels,
        y=labels,
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        xgap=2,
        ygap=2,
        customdata=[
            [[error[i, j], long[i], long[j]] for j in range(len(labels))]
            for i in range(len(labels))
        ],
        hovertemplate="<b>%{customdata[1]}</b> and<br><b>%{customdata[2]}</b><br>"
        "%{z:.3f} ± %{customdata[0]:.2g}"
        "<extra></extra>",
        colorbar={"title": "TV", "thickness": 12},
    )
    colours = scale_hex(np.clip(np.nan_to_num(gap), 0, 1))
    for i in range(len(labels)):
        for j in range(len(labels)):
            if i != j:
                figure.add_annotation(
                    x=labels[j],
                    y=labels[i],
                    text=measured(float(gap[i, j]), float(error[i, j])).replace(" ± ", "<br>± "),
                    showarrow=False,
                    font={"size": 11, "color": ink_on(colours[i][j])},
                )
    style(figure, x_title="", y_title="", height=120 + 62 * len(labels))
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    return figure.update_xaxes(showgrid=False, type="category")


def kernels_figure(result: Result, *, log_x: bool = False, log_y: bool = False) -> go.Figure:
    """Draw the kernels of pinned heads over the offset, with bands of one standard error."""
    figure = go.Figure()
    kernel, error = (np.atleast_2d(part["kernel"]) for part in (result.values, result.errors))
    offset = np.arange(kernel.shape[-1])
    labels = ["kernel"]
    if result.axes["kernel"] == ("pin", "offset"):
        places = result.values["position"].tolist()
        labels = [f"{pin}, n = {n}" for pin, n in zip(pin_labels(result), places, strict=True)]
    rows = dict(zip(labels, zip(kernel, error, strict=True), strict=True))
    looks = [look(place) for place in range(len(rows))]
    add_by_offset(figure, offset, rows, looks, log_x=log_x, floor=FLOOR if log_y else None)
    style(
        figure,
        x_title=f"offset n − i (tokens{', log scale' if log_x else ''})",
        y_title=f"probability per token{' (log scale)' if log_y else ''}",
        height=440,
    )
    if log_x:
        figure.update_xaxes(**log_offsets(len(offset) - 1))
    if log_y:
        low = max(float(np.nanmin(kernel)), FLOOR)
        figure.update_yaxes(**log_axis(low, max(float(np.nanmax(kernel)), 2 * low)))
    else:
        figure.update_yaxes(rangemode="tozero")
    return legend_under_title(figure)


def depth_figure(results: Sequence[Result], names: Sequence[str]) -> go.Figure:
    """Draw a measure's mean over the heads of each layer against depth, for several models.

    Dotted lines show the smallest and the largest value of a layer's heads.
    """
    figure = go.Figure()
    for place, (one, name) in enumerate(zip(results, names, strict=True)):
        line_look = look(place)
        depth = one.values["depth"]
        for edge in ("smallest", "largest"):
            figure.add_scatter(
                x=depth,
                y=one.values[edge],
                mode="lines",
                line={"color": line_look.colour, "width": 0.8, "dash": "dot"},
                name=f"{name}: {edge} head",
                legendgroup=name,
                showlegend=False,
                hovertemplate=f"<b>{name}</b>, {edge} head<br>%{{y:.4g}}<extra></extra>",
            )
        add_curve(
            figure, depth, one.values["mean"], None, name=name, look=line_look,
            where="depth %{x:.2f}, mean over heads",
        )  # fmt: skip
    first = results[0]
    style(
        figure,
        x_title="depth: layer over the last layer's number",
        y_title=f"{first.params['measure']} ({first.units['mean']})",
        height=420,
    )
    return set_title(legend_under_title(figure), f"{first.params['measure']} by depth")


VIEWS: Views = {
    "compare-kernels": (
        View(
            "distance [pin other]",
            distances_figure,
            "Distances between heads (TV, 0 to 1)",
            says=_kernels,
            reading="The distance between the kernels of two heads, aligned by offset, with its "
            "standard error. Dark (0): the kernels are equal. Bright (1): they do not overlap.",
        ),
        View("kernel [pin offset]", says=_local),
        View(
            "kernel [pin offset], position [pin]",
            kernels_figure,
            "Kernels by offset",
            reading="The share of attention that each head gives to the token $n - i$ places back, "
            "by position alone. Bands are one standard error. Each run has kernels at its recorded "
            "query positions; the position nearest to the one in the sidebar is drawn.",
        ),
        View("kernel [offset]", kernels_figure, "Kernels by offset"),
    ),
    "compare-heads": (
        View(
            "z_score [measure pin]",
            says=_measures,
            reading="Every measure of every pinned head with its standard error. In brackets: by "
            "how many standard errors the head lies above (+) or below (−) the first head. Bold: 0 "
            "lies outside the 95 % interval of the difference.",
            explains="value",
        ),
    ),
    "depth": (
        View("mean [layer]", says=_depth),
        View(
            "mean smallest largest depth [layer]",
            lambda result: depth_figure([result], [result.model_title]),
            reading="The mean of the measure over the heads of each layer, from the first layer "
            "(0) to the last (1). Thin lines: the smallest and the largest value in each layer.",
        ),
    ),
}
