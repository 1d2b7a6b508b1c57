"""Patterns of sequences with candidates: one large map, or a small one for every head.

The role of a position is "start", "R" (a random token), "[A]", "[B]", "[C]", ...
"""

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.common.attention import only_visible
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import rounded
from poskernel_core.data.layouts import ROLES
from poskernel_core.plotting.head_map import share_bar
from poskernel_core.plotting.layout import LINE, MASKED, set_title, style
from poskernel_core.plotting.palette import SCALE

CANDIDATES = ROLES[ROLES.index("[B]") :]
NAMED = 32  # up to this many positions are all named at the axes of a large map
PANEL = 32  # cells along a side of a small map; longer sequences are pooled
_ABREAST = 56  # up to this many positions have a letter each, side by side in half a page
_ABOVE = 9  # the same for a panel's positions, one above the other
Pattern = Float[np.ndarray, "query key"]
Corners = Int[np.ndarray, "head 2"]


def head_pattern(patterns: Result) -> go.Figure:
    """Draw the mean pattern of one head, query (y) by key (x), with the roles at both axes."""
    roles, z = patterns.text_of("role"), only_visible(patterns.values["pattern"])
    size = len(roles)
    options: dict[str, Any] = {"hovertemplate": "query %{y} → key %{x}: <b>%{z:.3g}</b>"}
    if size <= 2 * NAMED:
        options = {"hovertemplate": "%{text}", "text": _hover(z, patterns.errors["pattern"], roles)}
    figure = _cells(z, **options)
    style(figure, x_title="key (position, role)", y_title="query (position, role)", height=520)
    figure.update_layout(plot_bgcolor=MASKED)
    look = {"showgrid": False, "tickfont_size": 11, "constrain": "domain"} | _ticks(roles)
    ends = [-0.5, size - 0.5]
    figure.update_xaxes(**look, constraintoward="left", tickangle=-90, range=ends)
    figure.update_yaxes(**look, constraintoward="top", scaleanchor="x", range=ends[::-1])
    return share_bar(figure, 1.0)


def layer_patterns(patterns: Result) -> go.Figure:
    """Draw the mean patterns of a layer's heads as small maps, in one trace on one scale.

    Letters name the positions. Sequences of more than 32 tokens are pooled: a cell is the maximum
    of its block.
    """
    values, errors = patterns.values["pattern"], patterns.errors["pattern"]
    roles = patterns.text_of("role")
    step = math.ceil(len(roles) / PANEL)
    columns = _columns(len(values))
    small = np.stack([_pooled(only_visible(pattern), step) for pattern in values])
    side = small.shape[1]
    pitch = np.array([side + max(2, round(0.28 * side)), side + max(1, round(0.1 * side))])
    corners = np.stack(np.divmod(np.arange(len(values)), columns), axis=-1) * pitch
    z = np.full((corners[-1, 0] + side, columns * pitch[1] + side - pitch[1]), np.nan)
    text = np.full(z.shape, "", dtype=object)
    for head, (row, column) in enumerate(corners):
        cells = slice(row, row + side), slice(column, column + side)
        z[cells] = small[head]
        spread = errors[head] if step == 1 else None
        text[cells] = _hover(small[head], spread, roles[::step], f"<b>H{head}</b> ", step)
    figure = _cells(z, text=text, hovertemplate="%{text}")
    pooled = f" (largest of {step} × {step} cells)" if step > 1 else ""
    _grid_axes(figure, corners, side, 150 if columns <= 4 else 115)
    _grid_ticks(figure, corners, roles, step, columns)
    title = f"Layer {patterns.chosen['layer']}: mean attention{pooled}"
    return set_title(share_bar(figure, 1.0), title)


def _cells(z: Pattern, *, hovertemplate: str, **options: Any) -> go.Figure:
    return go.Figure().add_heatmap(
        z=z.astype(np.float32),
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        hoverongaps=False,
        hovertemplate=f"{hovertemplate}<extra></extra>",
        **options,
    )


def letter(role: str) -> str:
    """Return the letter of a named position; empty for the start token and random tokens."""
    return role[1:-1] if role.startswith("[") else ""


def _columns(heads: int) -> int:
    """Return maps per row: 4, or 8 for more than 16 heads, or fewer if all rows are then full."""
    most = 4 if heads <= 16 else 8
    return next((n for n in range(most, most // 2, -1) if heads % n == 0), min(heads, most))


def _pooled(pattern: Pattern, step: int) -> Float[np.ndarray, "query_block key_block"]:
    pad = -len(pattern) % step
    padded = np.pad(pattern, (0, pad), constant_values=np.nan)
    blocks = padded.reshape(len(padded) // step, step, -1, step)
    return np.fmax.reduce(np.fmax.reduce(blocks, axis=3), axis=1)


def _hover(
    cells: Pattern, error: Pattern | None, roles: list[str], head: str = "", step: int = 1
) -> np.ndarray:
    """Return each cell's hover text: head, query and key with their roles, value and error."""
    text = np.full(cells.shape, "", dtype=object)
    names = [
        f"{place * step}" + (f" {role}" if step == 1 else f"–{place * step + step - 1}")
        for place, role in enumerate(roles)
    ]
    for query, key in np.argwhere(np.isfinite(cells)):
        value = rounded(float(cells[query, key]), None if error is None else error[query, key])
        text[query, key] = f"{head}{names[query]} → {names[key]}<br><b>{value}</b>"
    return text


def _runs(roles: list[str], apart: bool) -> list[tuple[int, int]]:
    """Return the ends of each run of named positions; with `apart`, each position is a run."""
    runs: list[tuple[int, int]] = []
    for place, role in enumerate(roles):
        if not letter(role):
            continue
        if runs and runs[-1][1] == place - 1 and not apart:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


def _ticks(roles: list[str]) -> dict[str, Any]:
    """Return a large map's ticks: all positions with roles; on a long axis, runs of letters."""
    if len(roles) <= NAMED:
        names = [f"{place} {role}" for place, role in enumerate(roles)]
        return {"tickvals": list(range(len(roles))), "ticktext": names}
    runs = _runs(roles, apart=False)
    names = [f"{first} {''.join(roles[first : last + 1])}" for first, last in runs]
    return {"tickvals": [(first + last) / 2 for first, last in runs], "ticktext": names}


def _grid_axes(figure: go.Figure, corners: Corners, side: int, height: int) -> None:
    style(figure, x_title="key", y_title="query", height=140 + height * len(set(corners[:, 0])))
    for head, (row, column) in enumerate(corners - 0.5):
        frame = {"x0": column, "x1": column + side, "y0": row, "y1": row + side}
        figure.add_shape(type="rect", **frame, line={"color": LINE, "width": 0.7})
        figure.add_annotation(
            x=column,
            y=row,
            text=f"H{head}",
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font_size=12,
            yshift=-2,
            borderpad=0,
        )


def _grid_ticks(
    figure: go.Figure, corners: Corners, roles: list[str], step: int, columns: int
) -> None:
    """Put letters under every column and next to every row of panels; dense runs share a tick."""
    side = -(-len(roles) // step)
    for axis, start, apart in (
        ("xaxis", 1, side * columns <= _ABREAST),
        ("yaxis", 0, side <= _ABOVE),
    ):
        runs = _runs(roles, apart=apart and step == 1)
        at = np.array([((first + last + 1) / step - 1) / 2 for first, last in runs])
        names = ["".join(map(letter, roles[first : last + 1])) for first, last in runs]
        starts = np.unique(corners[:, start])
        figure.layout[axis].update(
            tickvals=(starts[:, None] + at).ravel(),
            ticktext=names * len(starts),
            tickangle=0,
            showgrid=False,
            showline=False,
            tickfont_size=10,
        )
    gap = 0.26 * side
    figure.update_yaxes(range=[corners[-1, 0] + side - 0.3, -0.5 - gap])
    figure.update_xaxes(range=[-0.7, corners[:, 1].max() + side - 0.3])
