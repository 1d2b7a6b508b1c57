"""Figures of heads over training: curves, kinds as counts, and all heads at every checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.analyses.claims import who
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import Look, add_curve, look
from poskernel_core.plotting.head_map import add_missing
from poskernel_core.plotting.layout import (
    LINE,
    bar_above,
    legend_under_title,
    log_ticks,
    number,
    set_title,
    style,
)
from poskernel_core.plotting.maps import Colours, probability_colours
from poskernel_core.plotting.palette import CATEGORICAL, DIVERGING, KIND_LOOKS, SCALE, VERMILLION

MAX_CURVES = 6
STEPS, TOKENS = "steps", "tokens"
MANY = 10**6
MARGIN = 0.05


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis of checkpoints; step 0 is drawn at half of the next step."""

    at: Float[np.ndarray, " step"]
    zero: float | None
    title: str

    def place(self, value: float) -> float:
        """Return the place of a step, or of a number of tokens."""
        return self.zero if value <= 0 and self.zero is not None else value

    def apply(self, figure: go.Figure) -> go.Figure:
        """Set this as a figure's x-axis, in place."""
        low, high = float(self.at[0]), float(self.at[-1])
        first = low if self.zero is None else 2 * low
        ticks = log_ticks(first, high) if first < high else [first]
        texts = [number(tick) for tick in ticks]
        if self.zero is not None:
            ticks, texts = [self.zero, *ticks], ["0", *texts]
        return figure.update_xaxes(type="log", tickvals=ticks, ticktext=texts)


def axis_of(result: Result, over: str = STEPS) -> Axis:
    """Return the axis of a result's checkpoints, in steps or in tokens read.

    Raises:
        ValueError: the numbers of tokens are unknown.
    """
    tokens = over == TOKENS
    values = (result.values["tokens"] if tokens else result.coordinates["step"]).astype(float)
    if np.isnan(values).any():
        raise ValueError("the tokens of these checkpoints are not known")
    zero = None
    if values[0] <= 0:
        zero = float(values[1]) / 2 if len(values) > 1 else 1.0
        values = np.append(zero, values[1:])
    unit = "tokens read" if tokens else "training step"
    return Axis(values, zero, f"{unit} (log scale)")


def most_changed(result: Result, most: int = MAX_CURVES) -> list[str]:
    """Return the heads whose measure changed the most from the first checkpoint to the last."""
    change = np.abs(result.values["change"])
    order = np.argsort(np.where(np.isnan(change), np.inf, -change), axis=None, kind="stable")
    places = np.unravel_index(order[:most], change.shape)
    return [head_name(int(layer), int(head)) for layer, head in zip(*places, strict=True)]


def curves(
    result: Result,
    heads: Sequence[str] = (),
    over: str = STEPS,
    beside: Result | None = None,
) -> go.Figure:
    """Draw the measure of some heads against steps or tokens, with bands of one standard error.

    By default these are the most changed ones; of a measure that is a kind, counts are drawn. Heads
    that the model lacks are left out. The axes span also what is drawn ``beside``. A diamond marks
    the emergence at half of the final value, on a line that spans its interval; heads that are
    above half from the first checkpoint on have no diamond.
    """
    if kinds := result.labels.get("measure"):
        return counts(result, tuple(kinds), over)
    if not heads:
        heads = [who(result)] if "head" in result.chosen else most_changed(result)
    axis, figure = axis_of(result, over), go.Figure()
    for index, name in enumerate(heads):
        if (one := _of(result, name)) is not None:
            _add_head(figure, one, axis, name, look(index), over)
    measure = result.params["measure"]
    style(figure, x_title=axis.title, y_title=f"{measure} ({result.units['measure']})", height=440)
    axis.apply(figure)
    if beside is not None:
        _span(figure, [result, beside], heads, over)
    title = f"{measure[:1].upper()}{measure[1:]} of {', '.join(heads)}"
    return set_title(legend_under_title(figure), title)


def _of(result: Result, name: str) -> Result | None:
    """Return a head's part of a result, which may be that already; None if the model lacks it."""
    if result.axes["measure"] == ("step",):
        return result
    layer, head = parse_cell(name, MANY, MANY)
    layers, heads = result.values["measure"].shape[1:]
    return result.select(layer=layer, head=head) if layer < layers and head < heads else None


def _span(figure: go.Figure, both: list[Result], heads: Sequence[str], over: str) -> None:
    """Let the axes of a figure span the curves of two results, in place."""
    places = np.log10(np.concatenate([axis_of(result, over).at for result in both]))
    drawn = [one for result in both for name in heads if (one := _of(result, name)) is not None]
    ends = [
        one.values["measure"] + sign * np.nan_to_num(one.errors.get("measure", 0.0))
        for one in drawn
        for sign in (-1, 1)
    ]
    figure.update_xaxes(range=_widened(places)).update_yaxes(range=_widened(np.concatenate(ends)))


def _widened(values: Float[np.ndarray, " value"]) -> list[float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = MARGIN * (high - low) or 1.0
    return [low - room, high + room]


def _add_head(
    figure: go.Figure, one: Result, axis: Axis, name: str, line_look: Look, over: str
) -> None:
    mean = _add_measure(figure, one, axis, name, line_look, over)
    at, first, last = (
        float(one.values[f"emergence{part}"]) for part in ("", "_earliest", "_latest")
    )
    if np.isnan(at) or at <= one.coordinates["step"][0]:  # above half from the first step on
        return
    places = [axis.place(_in(one, step, over)) for step in (first, at, last)]
    figure.add_scatter(
        x=places,
        y=[mean[-1] / 2] * 3,
        name=f"{name} emerges",
        legendgroup=name,
        showlegend=False,
        mode="lines+markers",
        line={"color": line_look.colour, "width": 1.5, "dash": "dot"},
        marker={
            "color": line_look.colour,
            "size": [9, 12, 9],
            "symbol": ["line-ns-open", "diamond", "line-ns-open"],
        },
        hovertemplate=f"<b>{name}</b> emerges at step {at:,.0f}<br>between step {first:,.0f} and "
        f"{last:,.0f}<extra></extra>",
    )


def _add_measure(
    figure: go.Figure, one: Result, axis: Axis, name: str, line_look: Look, over: str
) -> Float[np.ndarray, " step"]:
    mean = one.values["measure"].astype(float)
    error = np.nan_to_num(one.errors.get("measure", np.zeros_like(mean)))
    where = "step %{x:,}" if over == STEPS else "%{x:.3s} tokens"
    add_curve(figure, axis.at, mean, error, name=name, look=line_look, where=where)
    return mean


def _in(one: Result, step: float, over: str) -> float:
    if over == STEPS:
        return step
    return float(np.interp(step, one.coordinates["step"].astype(float), one.values["tokens"]))


def counts(result: Result, kinds: Sequence[str] = (), over: str = STEPS) -> go.Figure:
    """Draw how many heads are of each kind at every checkpoint, stacked."""
    if not result.values["count"].size:
        return by_axes(result)
    axis, figure = axis_of(result, over), go.Figure()
    kinds = kinds or [f"kind {place}" for place in range(result.values["count"].shape[1])]
    for index, (name, count) in enumerate(zip(kinds, result.values["count"].T, strict=True)):
        colour = _label_colour(name, index)
        figure.add_scatter(
            x=axis.at,
            y=count,
            name=name,
            stackgroup="heads",
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"size": 5, "symbol": look(index).symbol},
            hovertemplate=f"heads: %{{y}}, <b>{name}</b><extra></extra>",
        )
    style(figure, x_title=axis.title, y_title="heads", height=340)
    axis.apply(figure)
    return set_title(legend_under_title(figure), "Heads of each kind over training")


def _label_colour(name: str, index: int) -> str:
    kind = KIND_LOOKS.get(name)
    return kind.colour if kind else CATEGORICAL[index % len(CATEGORICAL)]


def grids(result: Result, selected: str = "", log: bool = False, unit: str = "") -> go.Figure:
    """Draw a small grid of all heads for each checkpoint, on one colour scale, layers downwards.

    The selected head is framed in every grid. A measure with negative values has a diverging scale.
    """
    unit = unit or result.units["measure"]
    measure = result.values["measure"].astype(float)
    names = result.labels.get("measure", ())
    steps, layers, heads = measure.shape
    columns = _columns(steps, heads)
    rows = -(-steps // columns)
    cells = np.full((rows * (layers + 1), columns * (heads + 1) - 1), np.nan)
    hover = np.full(cells.shape, "", dtype=object)
    corners = [
        ((layers + 1) * (place // columns) + 1, (heads + 1) * (place % columns))
        for place in range(steps)
    ]
    for place, (top, left) in enumerate(corners):
        cells[top : top + layers, left : left + heads] = measure[place]
        for layer, head in np.ndindex(layers, heads):
            hover[top + layer, left + head] = _told(result, place, layer, head)
    drawn, bounds, scale, ticks, texts = _coloured(cells, names, log, unit)
    heads_at = np.array([[text.split("<br>")[0] for text in row] for row in hover], dtype=object)
    figure = go.Figure().add_heatmap(
        z=drawn,
        zmin=bounds[0],
        zmax=bounds[1],
        colorscale=scale,
        xgap=1,
        ygap=1,
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
    )
    add_missing(figure, np.isnan(drawn) & (hover != ""), heads_at)
    labels = [number(float(step)) for step in result.coordinates["step"]]
    figure.add_scatter(
        x=[left - 0.5 for _, left in corners],
        y=[top - 0.95 for top, _ in corners],
        text=labels,
        mode="text",
        textposition="middle right",
        textfont={"size": 11},
        hoverinfo="skip",
        showlegend=False,
    )
    layer, head = parse_cell(selected, layers, heads) if selected else (0, 0)
    for top, left in corners if selected else ():
        x, y = left + head, top + layer
        frame = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
        figure.add_shape(type="rect", **frame, line={"color": VERMILLION, "width": 1.6})
    style(figure, x_title="", y_title="", height=min(170 + 22 * len(cells), 1400))
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, autorange="reversed")
    return bar_above(figure, unit, ticks, texts)


def _columns(steps: int, heads: int) -> int:
    """Return the number of grids in a row: at most 6, and about 48 heads wide."""
    return max(1, min(steps, 6, 48 // (heads + 1)))


def _told(result: Result, place: int, layer: int, head: int) -> str:
    step = int(result.coordinates["step"][place])
    value = result.values["measure"][place, layer, head]
    if names := result.labels.get("measure"):
        text = names[int(value)] if value >= 0 else "no value"
    else:
        error = result.errors.get("measure")
        text = f"{value:.3g}" + (f" ± {error[place, layer, head]:.2g}" if error is not None else "")
    return f"<b>{head_name(layer, head)}</b> at step {step:,}<br>{text}"


def _coloured(
    cells: np.ndarray, names: Sequence[str], log: bool, unit: str
) -> tuple[np.ndarray, tuple[float, float], object, list[float], list[str]]:
    if names:
        colours = [_label_colour(name, index) for index, name in enumerate(names)]
        edges = np.linspace(0, 1, len(names) + 1)
        scale = [[edge, c] for i, c in enumerate(colours) for edge in edges[i : i + 2].tolist()]
        drawn, places = np.where(cells >= 0, cells, np.nan), [*map(float, range(len(names)))]
        return drawn, (-0.5, len(names) - 0.5), scale, places, list(names)
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    if log:
        least = float(cells[np.isfinite(cells) & (cells > 0)].min(initial=high if high > 0 else 1))
        ends = Colours(least, max(high, 1.01 * least), SCALE, log=True, unit=unit)
    elif low < 0:
        reach = max(-low, high, 0.01)
        ends = Colours(-reach, reach, DIVERGING, log=False, unit=unit)
    else:
        ends = Colours(0.0, max(high, 0.01), SCALE, log=False, unit=unit)
    return ends.share(cells), (0, 1), ends.scale, *ends.ticks()


def kernels(result: Result) -> go.Figure:
    """Draw one head's kernel at every checkpoint: offset n - i across, checkpoints downwards."""
    skip, query = int(result.params["skip"]), int(result.params["query"])
    kernel = result.values["kernel"][:, skip : query + 1][:, ::-1]
    colours = probability_colours(kernel)
    steps = [number(float(step)) for step in result.coordinates["step"]]
    etc = np.broadcast_to(result.values["etc"][:, None], kernel.shape)
    figure = go.Figure().add_heatmap(
        z=colours.share(kernel),
        y=steps,
        zmin=0,
        zmax=1,
        colorscale=colours.scale,
        customdata=np.dstack([kernel, etc]),
        hovertemplate="step %{y}, offset %{x}<br>K %{customdata[0]:.3g}"
        "<br>ETC %{customdata[1]:.3g}<extra></extra>",
    )
    style(figure, x_title="offset n − i (tokens)", y_title="training step", height=420)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False)
    return bar_above(figure, "K (share, log scale)", *colours.ticks())


def induction_and_sink(scores: Result, sinks: Result, over: str = STEPS) -> go.Figure:
    """Draw one head's induction score, and its attention to the first token, over training.

    Both results are measures of that head over training.
    """
    axis, figure = axis_of(scores, over), go.Figure()
    both = {"induction score": scores, "attention to the first token": sinks}
    for place, (name, result) in enumerate(both.items()):
        _add_measure(figure, result, axis, name, look(place), over)
    style(figure, x_title=axis.title, y_title="share of attention", height=360)
    axis.apply(figure)
    figure.update_yaxes(range=[0, 1.02])
    figure.update_xaxes(linecolor=LINE)
    cell = head_name(scores.chosen["layer"], scores.chosen["head"])
    return set_title(legend_under_title(figure), f"Induction and sink of {cell} over training")
