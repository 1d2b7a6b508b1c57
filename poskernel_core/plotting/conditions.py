"""Position against token: means with their errors, one condition or case against another."""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.common.attention import only_visible
from poskernel_core.common.rounding import rounded
from poskernel_core.plotting.curves import Curve, Look, add_curve, curves
from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION, fade
from poskernel_core.plotting.patterns import stage_map

SHARE = "share of attention"
Curves = Float[np.ndarray, "curve point"]


CONDITION_LOOKS = (  # both, position only, token only: the posts' blue, red and green
    Look(BLUE),
    Look(VERMILLION, "dash", "square"),
    Look(GREEN, "dot", "diamond"),
)
CASE_LOOKS = (Look(BLUE), Look(VERMILLION, "dash", "square"), Look(PURPLE, "dot", "diamond"))


def measured(value: float, error: float) -> str:
    """A value rounded to its standard error, as figures write it: (−1.51 ± 0.30)×10⁻⁹."""
    return rounded(float(value), float(error)) if math.isfinite(value) else "not defined"


def condition_curves(
    means: Curves,
    errors: Curves,
    names: Sequence[str],
    *,
    title: str,
    x_title: str,
    y_title: str,
    where: str,
) -> go.Figure:
    """One curve per condition, with its band of one standard error, over 0, 1, 2, ..."""
    _check(means, errors, len(names), len(CONDITION_LOOKS))
    x, pairs = np.arange(means.shape[1]), zip(means, errors, strict=True)
    rows = dict(zip(names, pairs, strict=True))
    figure = curves(x, rows, x_title=x_title, y_title=y_title, where=where, looks=CONDITION_LOOKS)
    figure.update_xaxes(dtick=1 if len(x) <= 13 else None)
    return set_title(figure, title)


def pattern_map(
    pattern: Float[np.ndarray, "query key"], *, title: str, unit: str = SHARE
) -> go.Figure:
    """A mean pattern, keys that are not visible left blank, on a scale from 0 to 1."""
    if pattern.ndim != 2 or pattern.shape[0] != pattern.shape[1]:
        raise ValueError(f"expected as many queries as keys, received {[*pattern.shape]}")
    return stage_map(
        only_visible(pattern.astype(np.float64)), title=title, span=(0.0, 1.0), unit=unit
    )


def case_curves(
    rows: Curves, errors: Curves, names: Sequence[str], candidate: int, *, title: str
) -> go.Figure:
    """Attention of the last token to each key, a curve per case; NaN leaves a gap.

    Keys are counted so that [B] is key `candidate` in every case; there the values are ringed.
    """
    _check(rows, errors, len(names), len(CASE_LOOKS))
    figure = go.Figure()
    keys = np.arange(rows.shape[1])
    for row, error, name, one in zip(rows, errors, names, CASE_LOOKS, strict=True):
        add_curve(figure, keys, row, error, name=name, look=one, where="key %{x}", band=False)
        figure.add_scatter(
            x=[candidate],
            y=[row[candidate]],
            mode="markers",
            name=f"[B]: {name}",
            legendgroup=name,
            showlegend=False,
            hoverinfo="skip",
            cliponaxis=False,
            marker={"size": 16, "symbol": "circle-open", "color": one.colour, "line_width": 2},
        )
    style(
        figure,
        x_title=f"key, counted so that [B] is {candidate} (tokens)",
        y_title=f"{SHARE} ± 1 s.e.",
        height=420,
    )
    figure.add_vline(
        x=candidate,
        line={"color": LINE, "width": 1.2, "dash": "dot"},
        layer="below",
        annotation={"text": "[B]", "font_size": 13},
        annotation_position="top right",
    )
    figure.update_xaxes(dtick=1 if len(keys) <= 13 else None)
    figure.update_yaxes(range=[0, 1.15 * float(np.nanmax(rows))])  # room for the letter
    return set_title(legend_under_title(figure), title)


def mean_bars(
    names: Sequence[str],
    mean: Curve,
    error: Curve,
    *,
    title: str,
    x_title: str,
    other: Curve | None = None,
) -> go.Figure:
    """A bar with its standard error for each name; `other` are diamonds, of other random tokens."""
    if not mean.shape == error.shape == (len(names),):
        raise ValueError(
            f"expected {len(names)} means and errors, received {[*mean.shape]} and {[*error.shape]}"
        )
    figure = go.Figure()
    figure.add_bar(
        x=mean,
        y=list(names),
        orientation="h",
        marker_color=fade(BLUE, 0.6),
        showlegend=False,
        error_x={"array": error, "thickness": 2, "width": 6, "color": MUTED},
        hovertemplate="<b>%{y}</b><br>%{x:.3g} ± %{error_x.array:.2g}<extra></extra>",
    )
    if other is not None:
        figure.add_scatter(
            x=other,
            y=list(names),
            mode="markers",
            name="other random tokens (mean)",
            marker={"color": VERMILLION, "symbol": "diamond", "size": 10},
            hovertemplate="<b>%{y}</b><br>others %{x:.3g}<extra></extra>",
        )
    style(figure, x_title=x_title, y_title="", height=170 + 50 * len(names))
    figure.update_layout(bargap=0.45, showlegend=other is not None)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(rangemode="tozero")
    return set_title(legend_under_title(figure), title)


def _check(means: Curves, errors: Curves, names: int, looks: int) -> None:
    if means.ndim != 2 or means.shape != errors.shape or not len(means) == names == looks:
        raise ValueError(
            f"expected {looks} named curves with errors, received {names} names, means"
            f" {[*means.shape]} and errors {[*errors.shape]}"
        )
