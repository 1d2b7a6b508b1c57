"""Results -> figures: what pages draw and ``show --html`` writes."""

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from pages.parts.figures import of_contextual as contextual
from pages.parts.figures import of_experiments as experiments
from pages.parts.figures import of_positions as positions
from pages.parts.figures.kernels import kernel_curve
from pages.parts.figures.layout import set_title, style
from pages.parts.figures.maps import kernel_map
from pages.parts.figures.of_positions import profile_figure
from pages.parts.figures.palette import SCALE
from poskernel_core.analyses.base import Result

MAIN = ("log_etc", "kernel", "profile")


def etc_figure(etc: Result) -> go.Figure:
    """The log ETC of all heads [layer, head] as a heat map, ticks in tokens."""
    log = etc.values["log_etc"]
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if np.log(t) <= _top(etc)]
    kinds = np.array(etc.text_of("kind"), dtype=object)
    figure = go.Figure(
        go.Heatmap(
            z=log, zmin=0, zmax=_top(etc), colorscale=SCALE, xgap=1, ygap=1,
            customdata=np.dstack([etc.values["etc"], etc.values["half_mass_distance"], kinds]),
            hovertemplate="<b>L%{y}H%{x}</b><br>ETC %{customdata[0]:.4g} tokens<br>%{customdata[2]}"
            "<br>half of the mass within offset %{customdata[1]}<extra></extra>",
            colorbar={"title": "ETC (tokens)", "tickvals": np.log(ticks), "ticktext": ticks},
        )
    )  # fmt: skip
    style(figure, x_title="head", y_title="layer", height=420)
    figure.update_xaxes(dtick=1, showgrid=False)
    figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False)
    return figure


def _top(etc: Result) -> float:
    return float(np.log(max(np.nanmax(etc.values["visible"]), 2.0)))


def head_curve(
    kernel: Result, query: int, *, log_x: bool = False, log_y: bool = False
) -> go.Figure:
    """One head's kernel over the offset, from the results [key] of the kernel analysis."""
    first = int(kernel.params["skip"])
    row = slice(first, query + 1)
    turned = {
        name: kernel.values[name][row][::-1] for name in ("kernel", "kernel_low", "kernel_high")
    }
    observed = kernel.values["observed"][row][::-1] if "observed" in kernel.values else None
    offset = np.arange(query + 1 - first)
    figure = kernel_curve(
        offset, turned["kernel"], turned["kernel_low"], turned["kernel_high"], observed,
        log_x=log_x, log_y=log_y,
    )  # fmt: skip
    if kernel.params["source"] == "text":  # one query at n: no band, and no mean
        figure.data = figure.data[2:]
        figure.data[0].name, figure.data[-1].name = "kernel K", "observed attention in this text"
    return figure


def figure_of(result: Result) -> go.Figure:
    """The figure of any result: a curve, a heat map or bars, by the axes of its main value."""
    if result.analysis == "etc" and result.axes["log_etc"] == ("layer", "head"):
        return etc_figure(result)
    if result.analysis == "kernel" and result.axes["kernel"] == ("key",):
        return head_curve(result, int(result.params["query"]))
    if result.analysis == "kernel-map":
        title = f"Kernel of {result.params['cell']}"
        return kernel_map(result.values["kernel"], result.coordinates["query"], title=title)
    one = contextual.ONE_HEAD.get(result.analysis)
    if one and "layer" not in result.axes[one]:
        return _by_axes(result.only(one))
    if result.analysis in FIGURES:
        return FIGURES[result.analysis](result)
    if result.axes.get("profile") == ("offset",):
        return profile_figure(result, most=len(result.values["profile"]))
    return _by_axes(result)


def _ranking(result: Result) -> go.Figure:
    """One head's mean raw scores, or the ratio of all heads."""
    if result.axes["score_profile"] == ("band",):
        return positions.scores_figure(result, "Mean raw score by offset")
    return positions.table_figure(result)


def _tangent(result: Result) -> go.Figure:
    """One head's reading of the helix, or the fit of all heads."""
    if result.axes["position_score"] == ("band",):
        title = f"Reading the helix around n = {result.params['query']}"
        return positions.tangents_figure(result, title)
    return _by_axes(result.only("helix_fit"))


def _stages(result: Result) -> go.Figure:
    """The attention of a whole text, or of one row of it."""
    if result.axes["pattern"] == ("query", "key"):
        return positions.stage_figure(result, "pattern", None, whole=True)
    return _by_axes(result.only("pattern"))


def _scores(result: Result) -> go.Figure:
    """The induction score of all heads, or what one head does."""
    if result.axes["induction"]:
        return experiments.induction_figure(result)
    return experiments.head_scores_figure(result)


def _recency(result: Result) -> go.Figure:
    """What is predicted, or what one head attends to."""
    if "head" in result.axes["candidate_attention"]:
        return experiments.probability_figure(result)
    return experiments.candidate_figure(result, None, None)


def _row(result: Result) -> go.Figure:
    """The layer of the head that attends most to each of the candidates, or one head."""
    if result.axes["pattern"] == ("layer", "head", "query", "key"):
        at = [role in experiments.CANDIDATES for role in result.text_of("role")]
        found = result.values["pattern"][:, :, -1, at].min(axis=-1).max(axis=1)
        return experiments.row_patterns_figure(result, int(found.argmax()))
    if result.axes["pattern"] == ("query", "key"):
        return experiments.row_pattern_figure(result, None, None)
    return _by_axes(result.only("pattern"))


def _random(result: Result) -> go.Figure:
    """The norms of layer 0, or one head's attention from one position or the last."""
    if "head" in result.axes["pattern"]:
        return experiments.norm_figure(result)
    last = len(result.values["pattern"]) - 1 if "query" in result.axes["pattern"] else None
    return experiments.intrinsic_figure(result, None, None, last)


def _conditions(result: Result) -> go.Figure:
    """How far every head looks back by position, or one head's offsets, or one row of it."""
    if "head" in result.axes["pattern"]:
        return experiments.look_back_heads(result)
    if "query" in result.axes["pattern"]:
        return experiments.look_back_figure(result, None, None)
    return experiments.pattern_conditions_figure(result, None, None, None)


def _zero(result: Result) -> go.Figure:
    """The probability of [B] in the three cases, or one head's attention in them."""
    if "head" in result.axes["last_row"]:
        return experiments.zero_bars(result)
    return experiments.position_zero_figure(result, None, None)


def _cause(result: Result) -> go.Figure:
    """What flat norms change in one head's attention, or in the preference of all heads."""
    if result.axes["attention_change"] == ():
        return experiments.cause_figure(result)
    return _by_axes(result.only("attention_advantage_change"))


FIGURES: dict[str, Callable[[Result], go.Figure]] = {
    "helix": positions.morph_figure,
    "previous-token": _ranking,
    "tangent": _tangent,
    "stages": _stages,
    "intervention": positions.bars_figure,
    "averaging": positions.averaging_figure,
    "induction-scores": _scores,
    "induction-recency": _recency,
    "recency-patterns": _row,
    "norm-cause": _cause,
    "random-attention": _random,
    "position-vs-token": _conditions,
    "position-zero": _zero,
    **contextual.FIGURES,
}


def _by_axes(result: Result) -> go.Figure:
    name = next((n for n in MAIN if n in result.values), next(iter(result.values)))
    value, axes = np.atleast_1d(result.values[name]), result.axes[name] or ("",)
    last = result.coordinates.get(axes[-1], np.arange(value.shape[-1]))
    rows = value.reshape(-1, value.shape[-1])
    labels = ["L{}H{}".format(*i[:2]) if len(i) > 1 else str(i[0]) if i else name
              for i in np.ndindex(value.shape[:-1])]  # fmt: skip
    figure = go.Figure()
    for label, row in zip(labels, rows, strict=True):
        figure.add_scatter(
            x=last, y=row, name=label, mode="lines+markers" if len(row) < 40 else "lines"
        )
    unit = result.units[name]
    style(figure, x_title=f"{axes[-1]}", y_title=f"{name} ({unit})", height=520)
    return set_title(figure, f"{name} of {result.provenance['model']}")
