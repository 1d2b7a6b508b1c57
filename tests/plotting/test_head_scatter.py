"""All heads as points: where they lie, what they say, how they are coloured, what is ringed."""

import numpy as np
import pytest

from poskernel_core.plotting.head_scatter import Column, head_scatter, shown_on

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
    assert (["L0H0", "L0H1", "L0H2"], [1, 10, 100], [0.1, 0.2, 0.3]) == (
        names(points), list(points.x), list(points.y)
    )  # fmt: skip
    assert ("no value", ["L1H0"], "no value") == (other.name, names(other), other.customdata[0][3])
    assert ["L0H0", "1", "0.100 ± 0.011", "−1"] == list(points.customdata[0])
    told = head_scatter(X, Y, KIND, hover_columns=[KIND, Y]).data[0]
    assert ["L0H0", "local", "0.100 ± 0.011"] == list(told.customdata[0])
    assert "<br>kind: %{customdata[1]}<br>mass (share): %{customdata[2]}" in told.hovertemplate


def test_axes():
    layout = head_scatter(X, Y, HUE).layout
    assert ("log", None) == (layout.xaxis.type, layout.yaxis.type)
    assert ("reach (tokens)", "mass (share)") == (layout.xaxis.title.text, layout.yaxis.title.text)
    strange = Column("<b>x</b>", "", Y.values, source="<i>.csv")
    title = head_scatter(strange, Y, HUE).layout.xaxis.title.text
    assert "&lt;b&gt;x&lt;/b&gt;, from &lt;i&gt;.csv" == title


def test_colours():
    """Diverging around zero where numbers are negative, from zero else, decades on a log scale."""
    marker = head_scatter(X, Y, HUE).data[0].marker
    assert (-3, 3, [-1, 0, 3]) == (marker.cmin, marker.cmax, list(marker.color))
    marker = head_scatter(X, Y, Y).data[0].marker
    assert (0, 0.4) == (marker.cmin, marker.cmax)
    np.testing.assert_allclose(np.log([1, 10, 100, 2]), head_scatter(X, Y, X).data[0].marker.color)
    unit = Column("share", "", Y.values, scale="unit")
    assert 1 == head_scatter(X, Y, unit).data[0].marker.cmax


def test_kinds():
    figure = head_scatter(Y, Y, KIND)
    assert {"local": ["L0H0", "L1H1"], "slow decay": ["L0H1"], "uniform": ["L0H2"]} == {
        trace.name: names(trace) for trace in figure.data
    }
    assert 3 == len({trace.marker.symbol for trace in figure.data})


def test_rings():
    figure = head_scatter(X, Y, HUE, selected=(0, 1), chosen=[(0, 0), (1, 1), (1, 0)])
    rings = {trace.name: list(trace.x) for trace in figure.data[2:]}
    assert {"chosen": [1, 2], "selected": [10]} == rings
    assert 2 == len(head_scatter(X, Y, HUE, selected=(1, 1)).data)


@pytest.mark.parametrize("values", [np.full((2, 3), np.nan), np.zeros((2, 3))])
def test_nothing_to_see(values):
    empty = Column("empty", "", values, scale="log")
    assert head_scatter(empty, Y, empty).to_json()
    assert head_scatter(X, Y, empty).to_json()


@pytest.mark.parametrize("colour", ["number", "kind"])
def test_faded_heads(colour):
    """Each head keeps its place and colour; only its opacity is another."""
    faint = np.zeros((2, 3), dtype=bool)
    faint[0, 0] = faint[0, 2] = True
    shade = KIND if colour == "kind" else Y
    figures = [head_scatter(X, Y, shade, faint=each) for each in (None, faint)]
    plain, faded = (looks(figure) for figure in figures)
    assert plain.keys() == faded.keys()
    for name, (x, shown, opacity) in faded.items():
        assert (x, shown) == plain[name][:2]
        assert opacity == (0.2 if name in ("L0H0", "L0H2") else None)


def looks(figure):
    """Where each head lies, in which colour, and how opaque."""
    found = {}
    for trace in figure.data:
        for place, row in enumerate(trace.customdata):
            colour = trace.marker.color
            colour = colour if isinstance(colour, str) else colour[place]
            found[row[0]] = trace.x[place], colour, trace.marker.opacity
    return found
