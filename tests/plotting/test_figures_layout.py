"""What cards take off a figure: its title, and the room above it that nothing stands in."""

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import (
    BARE,
    SHRUNK,
    THIRD,
    TITLE,
    is_square,
    relayout,
    set_height,
    set_title,
    without_title,
)
from poskernel_core.plotting.maps import folded_square, kernel_map

ROW = np.full(26, 1 / 26)


def lines(count):
    rows = {f"{i}": (np.ones(3), None) for i in range(count)}
    figure = curves(np.arange(3), rows, x_title="x", y_title="y", where="")
    return set_title(figure, "title")


def test_one_curve():
    figure = without_title(lines(1))

    assert (None, BARE) == (figure.layout.title.text, figure.layout.margin.t)


def test_a_colour_bar_moves_up():
    """As far as the plotting area, so that both stay as far apart."""
    before, figure = (folded_square(ROW, title="title") for _ in range(2))
    without_title(figure)

    moved = before.layout.margin.t - figure.layout.margin.t
    assert TITLE == moved
    share = figure.data[0].colorbar.y - before.data[0].colorbar.y
    assert share > 0
    assert moved == pytest.approx(share * SHRUNK * figure.layout.height)


@pytest.mark.parametrize("title", ["title", None])
def test_a_legend_moves_up(title):
    """By the room of the title, be there one or not, and once."""
    figure = lines(2).update_layout(title_text=title)
    before = figure.layout.margin.t
    for _ in range(2):
        without_title(figure)

        assert (1, "container") == (figure.layout.legend.y, figure.layout.legend.yref)
        assert before - TITLE == figure.layout.margin.t


@pytest.mark.parametrize("height", [THIRD, 300])
def test_a_bar_in_a_smaller_map(height):
    large, small = (folded_square(ROW, title="") for _ in range(2))
    set_height(small, height)

    pixels = [(1 - one.data[0].colorbar.y) * one.layout.height for one in (large, small)]
    assert pixels[0] == pytest.approx(pixels[1])


def test_squares():
    assert is_square(folded_square(ROW, title=""))
    assert not is_square(kernel_map(np.ones((2, 3)) / 3, np.array([0, 2]), title=""))
    assert not is_square(lines(1))
    assert not is_square(go.Figure())


@pytest.mark.parametrize(
    "change",
    [
        {"height": 500, "hovermode": "x"},
        {"xaxis": {"tickfont": {"color": "#111111"}}, "yaxis": {"title": {"text": "new"}}},
        {"legend": {"font": {"color": "#222222"}}, "margin": {"t": 3}},
        {"xaxis": {"tickvals": [1, 2], "ticktext": ["a", "b"], "type": "log"}},
    ],
)
def test_relayout_is_what_update_layout_does(change):
    def figure():
        axes = {"xaxis": {"title": {"text": "x"}, "range": [0, 1]}, "yaxis": {"automargin": True}}
        return go.Figure(go.Scatter(y=[1, 2]), axes | {"margin": {"l": 7}, "height": 300})

    assert figure().update_layout(change).to_dict() == relayout(figure(), change).to_dict()
