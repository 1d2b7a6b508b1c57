"""Values along an axis: a curve for each name, bands or bars where there are errors; layouts."""

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses.additivity.views import PARTS
from poskernel_core.analyses.pictures import alike
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result, Value
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import BANDS, curves
from poskernel_core.plotting.layout import is_square, relayout, say_if_empty, set_title
from poskernel_core.plotting.maps import kernel_map
from tests.support.made_results import answer, named

AT = np.arange(3, 8)
ROW = np.full(26, 1 / 26)


def drawn(rows):
    return curves(AT, rows, x_title="x", y_title="y", where="key %{x}")


def result():
    value = np.arange(2 * 2 * 3 * 5.0).reshape(2, 2, 3, 5)
    axes = {"kernel": ("run", "layer", "head", "query")}
    made = Result(
        "kernel", {}, {"kernel": value}, axes, {"kernel": "share"},
        errors={"kernel": value / 10},
        coordinates={"query": AT}, provenance={"model": "m"},
    )  # fmt: skip
    return made.with_text(Value("runs", ("run",), "name", ""), ["clean", "flat"])


def test_a_band_of_one_error():
    value, error = AT**2.0, np.full(5, 0.5)
    low, high, line = drawn({"a": (value, error)}).data
    np.testing.assert_array_equal([value - 0.5, value + 0.5, value], [low.y, high.y, line.y])
    np.testing.assert_array_equal(error, line.customdata)


@pytest.mark.parametrize("error", [None, np.full(5, np.nan)])
def test_values_without_errors(error):
    (line,) = drawn({"a": (AT * 1.0, error)}).data
    assert (None, None, False) == (line.error_y.array, line.customdata, "±" in line.hovertemplate)


def test_many_curves_have_bars():
    """Bands of more than a few would hide each other."""
    rows = {f"{i}": (AT * 1.0, np.full(5, 0.1)) for i in range(BANDS + 1)}
    assert BANDS + 1 == len(drawn(rows).data)
    np.testing.assert_array_equal(drawn(rows).data[0].error_y.array, rows.pop("0")[1])
    assert 3 * BANDS == len(drawn(rows).data)


def test_curves_of_a_result():
    figure = by_axes(result())
    assert 2 * 2 * 3 == len(figure.data)
    one, asked = named(figure, "L1H2, flat"), result()
    np.testing.assert_array_equal([AT, asked.values["kernel"][1, 1, 2]], [one.x, one.y])
    np.testing.assert_array_equal(asked.errors["kernel"][1, 1, 2], one.error_y.array)
    single = asked.select(run=1, layer=1, head=2)
    assert {"kernel"} == {trace.legendgroup for trace in by_axes(single).data}
    assert [59.0] == by_axes(single.select(query=7)).data[-1].y.tolist()


def test_squares():
    assert is_square(go.Figure(go.Heatmap(z=[ROW])).update_yaxes(scaleanchor="x"))
    assert not is_square(kernel_map(np.ones((2, 3)) / 3, np.array([0, 2]), title=""))
    assert not is_square(set_title(drawn({"a": (AT * 1.0, None)}), "title"))
    assert not is_square(go.Figure())


def test_relayout_is_what_update_layout_does():
    axes = {"xaxis": {"title": {"text": "x"}, "range": [0, 1]}, "yaxis": {"automargin": True}}
    for change in (
        {"height": 500, "xaxis": {"tickfont": {"color": "#111111"}}, "margin": {"t": 3}},
        {"xaxis": {"tickvals": [1, 2], "ticktext": ["a", "b"], "type": "log"}},
    ):
        one, other = (
            go.Figure(go.Scatter(y=[1, 2]), axes | {"margin": {"l": 7}}) for _ in range(2)
        )
        assert one.update_layout(change).to_dict() == relayout(other, change).to_dict()


def test_an_empty_figure_says_so():
    gone = [None, np.nan]
    for trace in (
        go.Scatter(x=[1, 2], y=gone), go.Bar(x=gone, y=["a", "b"], orientation="h"),
        go.Heatmap(z=[gone, gone]), go.Scatter(),
    ):  # fmt: skip
        figure = say_if_empty(go.Figure(trace))
        assert ["Nothing to draw"] == [each.text[:15] for each in figure.layout.annotations]
        (said,) = say_if_empty(go.Figure(trace), "It is so.").layout.annotations
        assert "It is so." == said.text
    for trace in (
        go.Scatter(x=[1, 2], y=[np.nan, 0]), go.Bar(x=[0, np.nan], y=["a", "b"], orientation="h"),
        go.Heatmap(z=np.array([gone, [np.nan, 3]], dtype=float)), go.Image(source="data:,"),
        go.Table(cells={"values": [["a"]]}),
    ):  # fmt: skip
        both = go.Figure([go.Scatter(x=[1], y=[None]), trace])
        assert () == say_if_empty(both).layout.annotations


def test_heads_that_share_keys_are_one_bar():
    assert {0: "H0-H2", 3: "H3", 4: "H4-H5"} == alike(np.array([0.2, 0.2, 0.2, 0.1, 0.3, 0.3]))
    assert {0: "H0", 1: "H1"} == alike(np.array([0.2, 0.1]))
    found = answer("additivity")
    for name in PARTS:
        found.values[name][1] = found.values[name][1, [0, 0, 2]]
    for bar in figure_of(found.select(layer=1)).data:
        assert ("H0-H1", "H2") == bar.x
        assert 2 == len(bar.y) == len(bar.text)
