"""Square maps: the stages of attention, and differences."""

import numpy as np
import pytest
from plotly.colors import hex_to_rgb

from poskernel_core.plotting.layout import quoted
from poskernel_core.plotting.palette import DIVERGING, scale_rgb
from poskernel_core.plotting.patterns import CELLS, robust_span, stage_map
from tests.plotting.test_figures import decoded


def luminance(rgb: np.ndarray) -> np.ndarray:
    """Relative luminance of colours [..., 3] in 0 to 255."""
    part = np.asarray(rgb) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_diverging_scale_rises_in_luminance_around_a_neutral_grey() -> None:
    """In print, below 0 stays darker than above; the middle stands out on white and near-black."""
    light = luminance(scale_rgb(np.linspace(0, 1, 51), DIVERGING))
    assert (np.diff(light) > 0).all()
    middle = scale_rgb(np.array(0.5), DIVERGING)
    assert 1 == len(set(middle.tolist()))
    page = luminance(np.array(hex_to_rgb("#11181e")))
    assert (light[25] + 0.05) / (page + 0.05) > 3
    assert 1.05 / (light[25] + 0.05) > 3


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" turtle", "␣turtle"),
        ("a  ", "a␣␣"),
        ("a b", "a b"),
        ("\n\n", "⏎⏎"),
        ("\t", "⇥"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("", ""),
        ("  ", "␣␣"),
    ],
)
def test_quoted_makes_spaces_and_breaks_visible_and_obeys_no_markup(token: str, shown: str) -> None:
    assert f"\N{LEFT SINGLE QUOTATION MARK}{shown}\N{RIGHT SINGLE QUOTATION MARK}" == quoted(token)


def test_small_stage_map_names_tokens_and_leaves_hidden_cells_empty() -> None:
    tokens = ["<s>", "the", " ninja", " turtle", "\n"]
    values = np.array([[0.5, -np.inf], [1.5, 2.5]])
    figure = stage_map(values, title="masked", first_query=2, first_key=1, tokens=tokens)
    (cells,) = figure.data
    assert (f"2 {quoted(' ninja')}", f"3 {quoted(' turtle')}") == tuple(cells.y)
    assert (f"1 {quoted('the')}", f"2 {quoted(' ninja')}") == tuple(cells.x)
    assert tuple(cells.x) == tuple(figure.layout.xaxis.ticktext)
    np.testing.assert_array_equal([[0.5, np.nan], [1.5, 2.5]], cells.z)
    assert "query %{y} → key %{x}: <b>%{z:.3g}</b>" in cells.hovertemplate
    assert (1.5, -0.5) == tuple(figure.layout.yaxis.range)
    assert "x" == figure.layout.yaxis.scaleanchor


def test_stage_map_of_more_rows_has_round_positions_as_ticks() -> None:
    axis = stage_map(np.eye(50), title="K", first_query=103, first_key=103).layout.yaxis
    assert (2, 7) == tuple(axis.tickvals[:2])
    assert ("105", "110") == tuple(axis.ticktext[:2])


def test_raw_scores_keep_their_future_and_a_robust_span() -> None:
    """One outlier among 400 does not wash out the rest, and the bar says that it lies beyond."""
    values = np.linspace(-2, 3, 400).reshape(20, 20)
    values[0, 0] = -900.0
    figure = stage_map(values, title="raw", diverging=True, unit="score (nats)")
    cells = figure.data[0]
    assert np.isfinite(cells.z).all()
    assert -cells.zmin == cells.zmax == pytest.approx(np.percentile(values, 99))
    assert cells.colorbar.ticktext[0].startswith("≤ −")
    assert cells.colorbar.ticktext[-1].startswith("≥")
    assert "0" == cells.colorbar.ticktext[2]
    assert DIVERGING[0] == cells.colorscale[0][1]


def test_spans_of_probabilities_and_of_equal_values() -> None:
    assert (0.0, 0.9) == robust_span(np.array([[0.9, np.nan], [0.0, 0.1]]))
    assert (2.0, 3.0) == robust_span(np.full((2, 2), 2.0))
    assert (-1.0, 1.0) == robust_span(np.zeros((2, 2)), diverging=True)


def test_large_stage_map_is_a_picture_with_the_right_pixels_and_a_colour_bar() -> None:
    values = np.linspace(-1, 1, 67 * 71).reshape(67, 71)
    values[np.arange(71) > np.arange(67)[:, None]] = np.nan
    assert values.size > CELLS
    figure = stage_map(
        values, title="raw", first_query=9, first_key=5, diverging=True, span=(-1.0, 1.0)
    )
    pixels, shown = decoded(figure), np.isfinite(values)
    np.testing.assert_array_equal(pixels[..., 3], np.where(shown, 255, 0))
    expected = scale_rgb((values[shown] + 1) / 2, DIVERGING).astype(int)
    assert np.abs(pixels[shown][:, :3] - expected).max() <= 3
    picture, bar = figure.data
    assert (5, 9) == (picture.x0, picture.y0)
    assert (-1, 1) == (bar.zmin, bar.zmax)
    assert (np.float32(values[0, 0]), 9, 5) == (np.float32(bar.z[0][0]), bar.y[0], bar.x[0])
    assert (75.5, 8.5) == tuple(figure.layout.yaxis.range)
    assert "query %{y} → key %{x}" in picture.hovertemplate


def test_largest_maps_are_smoothed_and_travel_light() -> None:
    noise = np.random.default_rng(0).normal(size=(1024, 1024))
    figure = stage_map(noise, title="raw", diverging=True)
    assert "fast" == figure.data[0].zsmooth
    assert len(figure.to_json()) < 1_150_000
    assert stage_map(noise[:99, :99], title="raw").data[0].zsmooth is False


@pytest.mark.parametrize(("rows", "shift"), [(20, 100), (90, 0)])
def test_window_is_outlined_where_it_lies(rows: int, shift: int) -> None:
    """Cells stand at row numbers, pixels of a picture at positions."""
    figure = stage_map(np.eye(rows), title="P", first_query=100, first_key=100, window=(104, 109))
    edge, square = figure.layout.shapes
    assert (103.5 - shift, 108.5 - shift) == (square.x0, square.x1)
    assert (103.5 - shift, 108.5 - shift) == (square.y0, square.y1)
    assert edge.line.width > square.line.width


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"values": np.full((3, 3), -np.inf)}, "all 9 values are masked"),
        ({"span": (1.0, 1.0)}, "low < high"),
        ({"tokens": ["a", "b"]}, "at least 3 tokens"),
        ({"window": (2, 2)}, "start < stop"),
    ],
)
def test_what_cannot_be_drawn_is_named(wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        stage_map(**({"values": np.eye(3), "title": ""} | wrong))
