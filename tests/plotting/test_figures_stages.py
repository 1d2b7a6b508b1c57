"""Square maps: the stages of attention, and differences."""

import numpy as np
import pytest

from poskernel_core.plotting.layout import quoted
from poskernel_core.plotting.palette import DIVERGING
from poskernel_core.plotting.patterns import CELLS, robust_span, stage_map
from tests.plotting.test_figures import check_pixels


@pytest.mark.parametrize(
    ("token", "shown"),
    [(" turtle", "␣turtle"), ("a  ", "a␣␣"), ("a b", "a b"), ("\n\n\t", "⏎⏎⇥"),
     ("<b>&", "&lt;b&gt;&amp;"), ("", "")],
)  # fmt: skip
def test_quoted_makes_spaces_and_breaks_visible_and_obeys_no_markup(token: str, shown: str) -> None:
    assert f"\N{LEFT SINGLE QUOTATION MARK}{shown}\N{RIGHT SINGLE QUOTATION MARK}" == quoted(token)


def test_small_stage_map_names_tokens_and_leaves_hidden_cells_empty() -> None:
    tokens = ["<s>", "the", " ninja", " turtle", "\n"]
    values = np.array([[0.5, -np.inf], [1.5, 2.5]])
    figure = stage_map(values, title="masked", first_query=2, first_key=1, tokens=tokens)
    (cells,) = figure.data
    assert (f"2 {quoted(' ninja')}", f"3 {quoted(' turtle')}") == tuple(cells.y)
    assert (f"1 {quoted('the')}", f"2 {quoted(' ninja')}") == tuple(cells.x)
    np.testing.assert_array_equal([[0.5, np.nan], [1.5, 2.5]], cells.z)
    assert (1.5, -0.5) == tuple(figure.layout.yaxis.range)


def test_raw_scores_keep_their_future_and_a_robust_span() -> None:
    """One outlier among 400 does not wash out the rest, and the bar says that it lies beyond."""
    values = np.linspace(-2, 3, 400).reshape(20, 20)
    values[0, 0] = -900.0
    cells = stage_map(values, title="raw", diverging=True, unit="score (nats)").data[0]
    np.testing.assert_allclose(cells.z, values)
    assert -cells.zmin == cells.zmax == pytest.approx(np.percentile(values, 99))
    assert cells.colorbar.ticktext[0].startswith("≤ −")
    assert cells.colorbar.ticktext[-1].startswith("≥")


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
    check_pixels(figure, values, (values + 1) / 2, DIVERGING)
    picture, bar = figure.data
    assert (5, 9, -1, 1) == (picture.x0, picture.y0, bar.zmin, bar.zmax)
    assert (75.5, 8.5) == tuple(figure.layout.yaxis.range)


def test_largest_maps_travel_light() -> None:
    noise = np.random.default_rng(0).normal(size=(1024, 1024))
    assert len(stage_map(noise, title="raw", diverging=True).to_json()) < 1_150_000


@pytest.mark.parametrize(("rows", "shift"), [(20, 100), (90, 0)])
def test_window_is_outlined_where_it_lies(rows: int, shift: int) -> None:
    """Cells stand at row numbers, pixels of a picture at positions."""
    figure = stage_map(np.eye(rows), title="P", first_query=100, first_key=100, window=(104, 109))
    square, ends = figure.layout.shapes[1], (103.5 - shift, 108.5 - shift)
    assert (*ends, *ends) == (square.x0, square.x1, square.y0, square.y1)


def test_what_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ValueError, match="all 9 values are masked"):
        stage_map(np.full((3, 3), -np.inf), title="")
