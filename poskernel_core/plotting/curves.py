"""Values along an axis, with their errors as bands or bars; over offsets, points on stems."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int, Num

from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, style
from poskernel_core.plotting.palette import CATEGORICAL, fade

MARKED = 64  # a curve of up to this many points has markers
NEAR = 16  # offsets up to this one are points on stems: there is nothing between two tokens
BANDS = 6  # more curves than this have error bars, because bands would hide each other
Curve = Float[np.ndarray, " point"]
Curves = Float[np.ndarray, "curve point"]


@dataclass(frozen=True)
class Look:
    """Look of a curve: colour (hex), and dash and symbol (Plotly), distinct even without colour."""

    colour: str
    dash: str = "solid"
    symbol: str = "circle"


_COLOURS = CATEGORICAL[:4]  # those that stand out on light and dark pages
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")


def look(index: int) -> Look:
    """Return the look of curve `index`: four colours in turn, with different dashes."""
    turn, place = divmod(index, len(_COLOURS))
    dash = _DASHES[(place + turn) % len(_DASHES)]
    return Look(_COLOURS[place], dash, _SYMBOLS[index % len(_SYMBOLS)])


def curves(
    x: Num[np.ndarray, " point"],
    rows: Mapping[str, tuple[Curve, Curve | None]],
    *,
    x_title: str,
    y_title: str,
    where: str,
    looks: Sequence[Look] = (),
    band: bool = True,
) -> go.Figure:
    """Draw a curve for every name, from its values and their errors (None: no errors).

    `where` is the hover text of the place, such as "key %{x}".
    """
    figure = go.Figure()
    for place, (name, (value, error)) in enumerate(rows.items()):
        add_curve(
            figure,
            x,
            value,
            error,
            name=name,
            look=looks[place] if looks else look(place),
            where=where,
            band=band and len(rows) <= BANDS,
        )
    style(figure, x_title=x_title, y_title=y_title)
    if len(rows) == 1:
        return figure.update_layout(showlegend=False)
    return legend_under_title(figure)


def add_curve(
    figure: go.Figure,
    x: Num[np.ndarray, " point"],
    mean: Curve,
    error: Curve | None,
    *,
    name: str,
    look: Look,
    where: str,
    band: bool = True,
    floor: float | None = None,
) -> None:
    """Add values and their standard errors, if any, as a band or as bars.

    Hover shows both.

    `where` is the hover text of the place, such as "key %{x}". With a `floor`, for log axes, the
    band ends there, and values below it are not drawn.
    """
    known = error is not None and bool(np.isfinite(error).any())
    error = np.abs(error) if error is not None and known else np.zeros_like(mean)
    drawn = mean if floor is None else np.where(mean >= floor, mean, np.nan)
    bars = None
    if known and band:
        low = mean - error if floor is None else np.maximum(mean - error, floor)
        high = mean + error if floor is None else np.maximum(mean + error, floor)
        names = {"name": f"{name} − 1 s.e."}, {"name": f"{name} + 1 s.e.", "showlegend": False}
        add_band(figure, x, low, high, fade(look.colour, 0.28), *names, legendgroup=name)
    elif known:
        bars = {"array": error, "thickness": 1.4, "width": 4 if len(x) <= MARKED else 0}
    spread = " ± %{customdata:.2g}" if known else ""
    figure.add_scatter(
        x=x,
        y=drawn,
        name=name,
        legendgroup=name,
        error_y=bars,
        customdata=error if known else None,
        cliponaxis=False,  # do not clip markers at 0
        mode="lines+markers" if len(x) <= MARKED else "lines",
        line={"color": look.colour, "width": 2.2, "dash": look.dash},
        marker={"color": look.colour, "symbol": look.symbol, "size": 7 if len(x) <= 32 else 5},
        hovertemplate=f"<b>{name}</b>, {where}<br>%{{y:.3g}}{spread}<extra></extra>",
    )


def add_band(
    figure: go.Figure,
    x: Num[np.ndarray, " point"],
    low: Curve,
    high: Curve,
    colour: str,
    lower: dict[str, Any],
    upper: dict[str, Any],
    **both: Any,
) -> None:
    """Add a band from `low` to `high`; `lower`, `upper` and `both` style its edges."""
    edge = {"x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"} | both
    figure.add_scatter(y=low, showlegend=False, **edge, **lower)
    figure.add_scatter(y=high, fill="tonexty", fillcolor=colour, **edge, **upper)


def near(offsets: int, *, log_x: bool = False) -> int:
    """Return how many of the first offsets are drawn as points; the others are a line.

    These are all of a short figure, and none of a long one, whose near offsets have room only on a
    log axis.
    """
    return offsets if offsets <= 2 * NEAR + 1 else NEAR + 1 if log_x else 0


def add_offsets(
    figure: go.Figure,
    x: Num[np.ndarray, " point"],
    mean: Curve,
    edges: tuple[Curve, Curve] | None,
    *,
    name: str,
    look: Look,
    points: int,
    band_name: str = "",
    **trace: Any,
) -> None:
    """Add values by offset: the first `points` as points with bars, the others as a line.

    `edges` are the ends of the bars, and of the band around the line, which the legend calls
    `band_name`, if anything. `trace` are further Plotly options, some with an entry per point.
    """
    parts = {"markers": slice(0, points), "lines": slice(points, None)}
    listed = trace.pop("showlegend", True)
    if edges is not None and points < len(x):
        low, high = (edge[points:] for edge in edges)
        legend = {"name": band_name or name, "showlegend": bool(band_name)}
        add_band(
            figure, x[points:], low, high, fade(look.colour, 0.28), {}, legend, legendgroup=name
        )
    for mode, part in parts.items():
        if not len(x[part]):
            continue
        bars = None
        if edges is not None and mode == "markers":
            up, down = edges[1] - mean, mean - edges[0]
            bars = {"array": up[part], "arrayminus": down[part], "symmetric": False}
            bars |= {"thickness": 1.2, "width": 3}
        figure.add_scatter(
            x=x[part],
            y=mean[part],
            name=name,
            legendgroup=name,
            error_y=bars,
            mode=mode,
            line={"color": look.colour, "width": 2.2, "dash": look.dash},
            marker={"color": look.colour, "symbol": look.symbol, "size": 7},
            cliponaxis=False,  # do not clip markers at 0
            showlegend=listed and (mode == "lines" or points == len(x)),
            **{
                key: value[part] if isinstance(value, np.ndarray) else value
                for key, value in trace.items()
            },
        )


def add_stems(
    figure: go.Figure,
    x: Num[np.ndarray, " point"],
    curves: Curves,
    *,
    points: int,
    base: float = 0.0,
    **trace: Any,
) -> None:
    """Add the stems of the first `points`, from `base` to the farthest of several curves."""
    if not points:
        return
    heights = np.concatenate([curves[:, :points], np.full((1, points), base)])
    ends = np.nanmax(heights, axis=0), np.nanmin(heights, axis=0), np.full(points, np.nan)
    figure.add_scatter(
        x=np.repeat(x[:points], 3),
        y=np.stack(ends, axis=-1).ravel(),
        mode="lines",
        line={"color": LINE, "width": 1.2},
        name="",
        hoverinfo="skip",
        **{"showlegend": False} | trace,
    )


def add_by_offset(
    figure: go.Figure,
    offset: Int[np.ndarray, " point"],
    rows: Mapping[str, tuple[Curve, Curve | None]],
    looks: Sequence[Look],
    *,
    log_x: bool = False,
    floor: float | None = None,
    hidden: Collection[str] = (),
) -> None:
    """Add values over offsets with their errors, if any; on a log x-axis they lie at offset + 1.

    With a `floor`, for log axes, values below it are not drawn. Those `hidden` wait for a click in
    the legend.
    """
    x, points = offset + log_x, near(len(offset), log_x=log_x)
    lowest = -np.inf if floor is None else floor
    visible = [mean for name, (mean, _) in rows.items() if name not in hidden]
    means = np.maximum(visible, lowest)
    base = 0.0 if floor is None else float(np.nanmin(means))
    add_stems(figure, x, means, points=points, base=base)
    for (name, (mean, error)), look in zip(rows.items(), looks, strict=False):
        known = error is not None and bool(np.isfinite(error).any())
        wide = np.nan_to_num(np.abs(error)) if error is not None and known else 0 * mean
        spread = " ± %{customdata[1]:.2g}" if known else ""
        add_offsets(
            figure,
            x,
            np.where(mean >= lowest, mean, np.nan),
            (np.maximum(mean - wide, lowest), np.maximum(mean + wide, lowest)) if known else None,
            name=name,
            look=look,
            points=points,
            visible="legendonly" if name in hidden else True,
            customdata=np.stack([offset, wide], axis=-1),
            hovertemplate=f"<b>{name}</b>, offset %{{customdata[0]:d}}<br>%{{y:.3g}}{spread}"
            "<extra></extra>",
        )


def add_others(
    figure: go.Figure, x: Num[np.ndarray, " point"], others: Curves, **trace: Any
) -> None:
    """Add the curves of a layer's other heads as thin grey lines."""
    gap = np.full((len(others), 1), np.nan)  # between one head and the next
    figure.add_scatter(
        x=np.tile(np.append(x, x[-1]), len(others)),
        y=np.hstack([others, gap]).ravel(),
        mode="lines",
        line={"color": fade(MUTED, 0.5), "width": 0.8},
        hoverinfo="skip",
        name="other heads of the layer",
        **trace,
    )
