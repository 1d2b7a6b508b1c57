"""The grid of heads on paper: cells in order, marks or kernels, and a legend that says all."""

import numpy as np
import pytest

from poskernel_core.plotting.grid_cells import grid_data
from poskernel_core.plotting.grid_map import grid_map
from poskernel_core.plotting.palette import NO_VALUE, SCALE, fade
from poskernel_core.plotting.sparklines import compact_curves

COLOURS = [[SCALE[0], SCALE[5], SCALE[9]], [SCALE[9], NO_VALUE, SCALE[5]]]
LEGEND = {
    "legend": [(SCALE[0], "1"), (SCALE[5], ""), (SCALE[9], "100")],
    "legendTitle": "tokens",
    "glyphs": [
        ("∿", "kernel; larger on hover"),
        ("▌", "local"),
        ("★", "known function, named on hover"),
        ("faded", "not resolved"),
    ],
}


@pytest.fixture
def grid():
    """Layers of three heads, not in their order, of which L0H2 is faint and L1H1 has no value."""
    data = grid_data(
        COLOURS,
        [[f"L{i}H{j}: told" for j in range(3)] for i in range(2)],
        [["▌", "◣★", ""], ["▄", "", "★▖"]],
        [[False, False, True], [False] * 3],
        [[2, 0, 1], [1, 2, 0]],
        kernels=True,
    )
    return data | LEGEND


def drawn_colours(cells) -> list[list[str]]:
    """Return the colour that Plotly gives each cell."""
    middle = (cells.z - cells.zmin) / (cells.zmax - cells.zmin)
    stops = [(at, colour) for at, colour in cells.colorscale]
    return [[next(c for at, c in stops if at > share) for share in row] for row in middle.tolist()]


def test_cells_marks_and_legend(grid):
    figure = grid_map(grid, "L1H2")
    cells, missing, *marks, bar = figure.data
    assert [["L0H2", "L0H0", "L0H1"], ["L1H1", "L1H2", "L1H0"]] == [
        [text.split(":")[0] for text in row] for row in cells.customdata.tolist()
    ]
    clear = [[SCALE[0], SCALE[5]], [NO_VALUE, SCALE[5], SCALE[9]]]
    faint = fade(SCALE[9], 0.15)
    assert [[faint, *(fade(c, 1) for c in clear[0])], [fade(c, 1) for c in clear[1]]] == (
        drawn_colours(cells)
    )
    assert ("L1H1", 0, 0.5) == (missing.customdata[0], missing.x[0], missing.base[0])
    places = {
        each.marker.symbol: [*zip(each.x, each.y, strict=True)]
        for each in marks
        if each.showlegend is False
    }
    assert places == {
        "line-ns-open": [(1, 0)],
        "triangle-sw": [(1.85, 0)],
        "star": [(2.15, 0), (0.85, 1)],
        "square": [(1.15, 1)],
        "line-ew-open": [(2, 1)],
    }
    names = [each.name for each in marks if each.showlegend is None]
    assert ["kernel", "local", "known function: L0H1, L1H2", "not resolved"] == names
    assert ("tokens", ("1", "100"), (0, 1)) == (
        bar.marker.colorbar.title.text,
        bar.marker.colorbar.ticktext,
        bar.marker.colorbar.tickvals,
    )
    assert ("rank", ("1.", "2.", "3.")) == (
        figure.layout.xaxis.title.text,
        figure.layout.xaxis.ticktext,
    )
    (frame,) = figure.layout.shapes
    assert (0.5, 1.5, 0.5, 1.5) == (frame.x0, frame.x1, frame.y0, frame.y1)
    assert () == grid_map(grid).layout.shapes


def test_kernels_by_hand(grid):
    """Three offsets of one head: full height, half, none; its known function is a corner."""
    kernels = np.full((2, 3, 4), np.nan)
    kernels[0, 1] = [9, 0, 0.5, 1]
    figure = grid_map(grid | {"curves": compact_curves(kernels, query=3, first=1)})
    lines = [*figure.select_traces({"mode": "lines", "showlegend": False})]
    x, y = np.concatenate([np.array([line.x, line.y], dtype=float) for line in lines], axis=1)
    there = ~np.isnan(y)
    third = [1.5, 1.5 + 1 / 3, 1.5 + 1 / 3, 1.5 + 2 / 3, 1.5 + 2 / 3, 2.5]
    np.testing.assert_allclose(x[there], third, atol=1e-3)
    np.testing.assert_allclose(y[there], [-0.45, -0.45, 0.01, 0.01, 0.47, 0.47], atol=2e-3)
    corners = {
        each.marker.symbol: [*zip(each.x, each.y, strict=True)]
        for each in figure.select_traces({"mode": "markers", "hoverinfo": "skip"})
    }
    assert corners == {"triangle-ne": [(2.4, -0.4), (1.4, 0.6)], "square": [(0.6, 1.4)]}


def test_a_grid_without_legend_is_of_any_shape():
    plain = [[""] * 31 for _ in range(11)]
    data = grid_data([[SCALE[3]] * 31] * 11, plain, plain, [[False] * 31] * 11, None)
    figure = grid_map(data | {"legend": [], "legendTitle": "", "glyphs": []})
    assert (11, 31) == figure.data[0].z.shape
    assert ("0", "4", "8") == figure.layout.xaxis.ticktext[:3]
