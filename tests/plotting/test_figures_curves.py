"""Values along an axis: a curve for each name, bands or bars where there are errors."""

import numpy as np
import pytest

from poskernel_core.common.result import Result, Value
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import BANDS, curves
from tests.support.made_results import named

AT = np.arange(3, 8)


def drawn(rows, **more):
    return curves(AT, rows, x_title="x", y_title="y", where="key %{x}", **more)


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

    np.testing.assert_array_equal(value - 0.5, low.y)
    np.testing.assert_array_equal(value + 0.5, high.y)
    np.testing.assert_array_equal(value, line.y)
    np.testing.assert_array_equal(error, line.customdata)
    assert "±" in line.hovertemplate


@pytest.mark.parametrize("error", [None, np.full(5, np.nan)])
def test_values_without_errors(error):
    (line,) = drawn({"a": (AT * 1.0, error)}).data

    assert line.error_y.array is None
    assert "±" not in line.hovertemplate
    assert line.customdata is None


def test_many_curves_have_bars():
    """Bands of more than a few would hide each other."""
    rows = {f"{i}": (AT * 1.0, np.full(5, 0.1)) for i in range(BANDS + 1)}

    assert BANDS + 1 == len(drawn(rows).data)
    np.testing.assert_array_equal(drawn(rows).data[0].error_y.array, rows["0"][1])
    del rows["0"]
    assert 3 * BANDS == len(drawn(rows).data)


def test_curves_of_a_result():
    figure = by_axes(result())

    assert 2 * 2 * 3 == len(figure.data)
    one = named(figure, "L1H2, flat")
    np.testing.assert_array_equal(AT, one.x)
    np.testing.assert_array_equal(result().values["kernel"][1, 1, 2], one.y)
    np.testing.assert_array_equal(result().errors["kernel"][1, 1, 2], one.error_y.array)


def test_one_curve_and_one_number():
    one = result().select(run=1, layer=1, head=2)

    assert {"kernel"} == {trace.legendgroup for trace in by_axes(one).data}
    assert not by_axes(one).layout.showlegend
    assert [59.0] == by_axes(one.select(query=7)).data[-1].y.tolist()
