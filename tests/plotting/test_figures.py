"""Maps, panels and their scales draw the given numbers at the right places."""

import base64
import io

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import few_lines, log_ticks, number
from poskernel_core.plotting.maps import (
    Colours,
    difference_colours,
    kernel_map,
    probability_colours,
)
from poskernel_core.plotting.multiples import small_multiples
from poskernel_core.plotting.palette import SCALE, scale_rgb
from tests.support.made_results import named


def causal(queries: np.ndarray, keys: int) -> np.ndarray:
    values = 1.0 + np.arange(len(queries) * keys).reshape(len(queries), keys)
    return np.where(np.arange(keys) > queries[:, None], np.nan, values / values.max())


def check_pixels(figure: go.Figure, values: np.ndarray, shares: np.ndarray, scale) -> None:
    """The picture that a map travels as has the colours of these shares, and none where NaN."""
    source = next(trace.source for trace in figure.data if trace.type == "image")
    picture = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    pixels, shown = np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA")), ~np.isnan(values)
    np.testing.assert_array_equal(pixels[..., 3], np.where(shown, 255, 0))
    expected = scale_rgb(shares[shown], scale).astype(int)
    assert np.abs(pixels[shown][:, :3] - expected).max() <= 3


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(1, 400, [1, 10, 100]), (3, 60, [5, 10, 20, 50]), (1e-6, 1e-4, [1e-6, 1e-5, 1e-4])],
)
def test_log_ticks_are_round_and_inside(low: float, high: float, ticks: list[float]) -> None:
    assert ticks == log_ticks(low, high)


def test_number_is_plain_where_it_is_short() -> None:
    values = [0, 0.001, 1e-6, -2e-4, -0.5, 99_999, 100_000]
    assert "0 0.001 10⁻⁶ −2×10⁻⁴ −0.5 99999 10⁵" == " ".join(number(each) for each in values)


def test_kernel_map_of_few_rows() -> None:
    """Rows are named by their queries, masked cells are empty, the bar tells probabilities."""
    queries = np.array([2, 5, 11])
    kernel = causal(queries, 13)
    figure = kernel_map(kernel, queries, title="K")
    cells = figure.data[0]
    assert (("2", "5", "11"), "reversed") == (tuple(cells.y), figure.layout.yaxis.autorange)
    np.testing.assert_array_equal(np.isnan(kernel), np.isnan(cells.z))
    np.testing.assert_allclose(cells.customdata, kernel, rtol=1e-6)
    bar = kernel_map(np.array([[1e-4, 1e-3, 1e-2]]), np.array([2]), title="K").data[0].colorbar
    assert {"10⁻⁴": 0, "0.001": 0.5, "0.01": 1} == pytest.approx(
        dict(zip(bar.ticktext, bar.tickvals, strict=True))
    )


def test_large_kernel_map_is_a_picture_with_the_right_pixels() -> None:
    kernel, most = causal(40 + np.arange(419), 503), 1.0
    colours = Colours(0.0, most, SCALE, log=False, unit="share")
    figure = kernel_map(kernel, 40 + np.arange(419), title="K", colours=colours)
    check_pixels(figure, kernel, kernel / most, SCALE)
    assert (40, 0) == (figure.data[0].y0, figure.data[0].x0)
    assert (458.5, 39.5) == tuple(figure.layout.yaxis.range)


def test_kernel_map_refuses_a_wholly_masked_kernel() -> None:
    with pytest.raises(ValueError, match="all 15 values are masked"):
        kernel_map(np.full((3, 5), np.nan), np.arange(3), title="K")


def test_nearly_flat_values_look_flat() -> None:
    flat = 0.0025 + 1e-6 * np.arange(401.0)
    cells = kernel_map(flat[None], np.array([400]), title="").data[0]
    assert np.ptp(cells.z[~np.isnan(cells.z)]) < 0.1
    assert len(cells.colorbar.ticktext) >= 2
    assert all(0 <= each <= 1 for each in cells.colorbar.tickvals)


def test_scales() -> None:
    """Of differences symmetric, to a tenth of the largest probability or further; one for both."""
    small = difference_colours(np.array([0.001, -0.002]), np.array([0.5, 0.1]))
    np.testing.assert_allclose(small.share(np.array([0.0, 0.05, -9.0])), [0.5, 1, 0])
    large = difference_colours(np.array([0.4, np.nan]), np.array([0.5]))
    assert (-0.05, 0.05, 0.4) == (small.low, small.high, large.high)
    both = probability_colours(np.array([0.5, 0.01]), np.array([np.nan, 0.001]))
    assert (0.001, 0.5) == (both.low, both.high)


def test_small_multiples_put_each_head_into_its_panel() -> None:
    kernels = np.linspace(0.1, 0.8, 5 * 11).reshape(5, 11)
    figure = small_multiples(kernels, [f"L1H{head}" for head in range(5)], 4)
    first, second, fifth = (named(figure, f"L1H{head}") for head in (0, 1, 4))
    np.testing.assert_allclose(first.y, np.log10(kernels[0] / 0.08))
    np.testing.assert_allclose([first.x[0], first.x[-1], fifth.x[0]], [0, 1, 0])
    assert second.x[0] > first.x[-1]
    assert max(fifth.y) < min(first.y)
    np.testing.assert_array_equal(kernels[4], fifth.customdata[:, 1])


def test_small_multiples_thin_long_curves_but_keep_the_near_offsets() -> None:
    labels = [f"L0H{head}" for head in range(64)]
    figure = small_multiples(np.full((64, 1009), 1e-3), labels, 3)
    offsets = named(figure, "L0H63").customdata[:, 0]
    np.testing.assert_array_equal(np.arange(64), offsets[:64])
    assert (1008, True) == (offsets[-1], len(offsets) < 200)


def test_few_lines_are_shown_and_all_are_named() -> None:
    figure = go.Figure()
    for line in range(7):
        figure.add_scatter(y=[line], legendgroup=f"{line}", showlegend=False)
        figure.add_scatter(y=[line], name=f"{line}", legendgroup=f"{line}")
    few_lines(figure)
    gone = [each.legendgroup for each in figure.data if each.visible == "legendonly"]
    assert ["5", "5", "6", "6"] == gone
    figure = go.Figure([go.Scatter(y=[line], name=f"{line}") for line in range(4)])
    assert [None] * 4 == [line.visible for line in few_lines(figure, 9, last=True).data]
    few_lines(figure, 3, last=True)
    assert ["legendonly", None, None, None] == [line.visible for line in figure.data]


def test_heads_without_a_value_are_hatched() -> None:
    values = np.arange(6.0).reshape(2, 3)
    assert 1 == len(head_map(values, hover_text="").data)
    values[1, 2] = np.nan
    _, hatched = head_map(values, hover_text="").data
    assert (2, 0.5, "L1H2") == (hatched.x[0], hatched.base[0], hatched.customdata[0])
