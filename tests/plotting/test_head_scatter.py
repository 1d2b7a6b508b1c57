"""All heads as points: where they lie, what they say, how they are coloured, what is ringed."""

import numpy as np
import pytest

from poskernel_core.plotting.head_scatter import Column, head_scatter, shown_on
from poskernel_core.plotting.palette import DIVERGING, KIND_LOOKS, SCALE

X = Column("reach", "tokens", np.array([[1.0, 10, 100], [2, np.nan, 50]]), scale="log")
Y = Column("mass", "share", np.array([[0.1, 0.2, 0.3], [0.4, 0.5, np.nan]]),
           np.full((2, 3), 0.011))  # fmt: skip
HUE = Column("score", "", np.array([[-1.0, 0, 3], [np.nan, 1, 2]]), source="theirs.csv")
KIND = Column("kind", "", np.array([[0.0, 1, 2], [-1, 0, 0]]), scale="labels",
              labels=("local", "slow decay", "uniform"))  # fmt: skip


def names(trace):
    return [row[0] for row in trace.customdata]


def test_points():
    points, other = head_scatter(X, Y, HUE).data

    assert [(0, 0), (0, 1), (0, 2), (1, 0)] == shown_on(X, Y)
    assert ["L0H0", "L0H1", "L0H2"] == names(points)
    assert ([1, 10, 100], [0.1, 0.2, 0.3]) == (list(points.x), list(points.y))
    assert ("no value", ["L1H0"]) == (other.name, names(other))
    assert ["L0H0", "1", "0.100 ± 0.011", "−1"] == list(points.customdata[0])
    assert "no value" == other.customdata[0][3]
    assert "score, from theirs.csv: %{customdata[3]}" in points.hovertemplate


def test_points_tell_other_columns():
    for colour in (HUE, KIND):
        first = head_scatter(X, Y, colour, told=[KIND, Y]).data[0]
        assert ["L0H0", "local", "0.100 ± 0.011"] == list(first.customdata[0])
        assert "<br>kind: %{customdata[1]}<br>mass (share): %{customdata[2]}" in first.hovertemplate


def test_a_bias_is_said_where_it_is_known():
    biases = np.array([[0.00123, np.nan, 0.5], [0, 0, 0]])
    biased = Column("mass", "share", Y.values, Y.errors, biases)

    assert ["0.100 ± 0.011, bias 0.001", "0.200 ± 0.011", "0.300 ± 0.011, bias 0.5"] == [
        biased.text((0, head)) for head in range(3)
    ]


def test_axes():
    figure = head_scatter(X, Y, HUE)
    assert ("log", None) == (figure.layout.xaxis.type, figure.layout.yaxis.type)
    assert ("reach (tokens)", "mass (share)") == (
        figure.layout.xaxis.title.text, figure.layout.yaxis.title.text
    )  # fmt: skip
    zero = Column("reach", "tokens", np.zeros((2, 3)), scale="log")
    assert head_scatter(zero, Y, HUE).layout.xaxis.type is None
    strange = Column("<b>x</b>", "", Y.values, source="<i>.csv")
    title = head_scatter(strange, Y, HUE).layout.xaxis.title.text
    assert "&lt;b&gt;x&lt;/b&gt;, from &lt;i&gt;.csv" == title


def test_colours():
    """Diverging around zero where numbers are negative, from zero else, decades on a log scale."""
    marker = head_scatter(X, Y, HUE).data[0].marker
    assert (-3, 3) == (marker.cmin, marker.cmax)
    assert [shade for _, shade in marker.colorscale] == list(DIVERGING)
    assert [-1, 0, 3] == list(marker.color)
    marker = head_scatter(X, Y, Y).data[0].marker
    assert (0, 0.4) == (marker.cmin, marker.cmax)
    assert [shade for _, shade in marker.colorscale] == list(SCALE)
    marker = head_scatter(X, Y, X).data[0].marker
    np.testing.assert_allclose(np.log([1, 10, 100, 2]), marker.color)
    assert "10" in marker.colorbar.ticktext
    unit = Column("share", "", Y.values, scale="unit")
    assert 1 == head_scatter(X, Y, unit).data[0].marker.cmax


def test_kinds():
    figure = head_scatter(Y, Y, KIND)

    assert ["local", "slow decay", "uniform"] == [trace.name for trace in figure.data]
    assert [["L0H0", "L1H1"], ["L0H1"], ["L0H2"]] == [names(trace) for trace in figure.data]
    colours = [KIND_LOOKS[kind].colour for kind in KIND.labels]
    assert colours == [trace.marker.color for trace in figure.data]
    assert 3 == len({trace.marker.symbol for trace in figure.data})
    assert figure.layout.showlegend


def test_rings():
    figure = head_scatter(X, Y, HUE, selected=(0, 1), chosen=[(0, 0), (1, 1), (1, 0)])
    _, _, chosen, selected = figure.data

    assert ("chosen", [1, 2]) == (chosen.name, list(chosen.x))
    assert ("selected", [10]) == (selected.name, list(selected.x))
    assert {"skip"} == {chosen.hoverinfo, selected.hoverinfo}
    assert chosen.customdata is None
    assert 2 == len(head_scatter(X, Y, HUE, selected=(1, 1)).data)


@pytest.mark.parametrize("values", [np.full((2, 3), np.nan), np.zeros((2, 3))])
def test_nothing_to_see(values):
    empty = Column("empty", "", values, scale="log")

    assert head_scatter(empty, Y, empty).to_json()
    assert head_scatter(X, Y, empty).to_json()
