"""The figures of positions, stages and interventions draw the given numbers, with units."""

import base64
import io
import json
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image
from plotly.colors import hex_to_rgb

from pages.parts.figures import (
    angle_matrix,
    difference_map,
    helix_3d,
    helix_frames,
    kl_by_position,
    layer_lines,
    loss_by_group,
    loss_by_position,
    next_token_bars,
    score_profile_figure,
    stage_map,
    tangent_figure,
    variance_bars,
)
from pages.parts.figures.effects import percent
from pages.parts.figures.layout import quoted
from pages.parts.figures.palette import BLUE, DIVERGING, SCALE, VERMILLION, scale_rgb
from pages.parts.figures.scene import BETWEEN
from pages.parts.figures.stages import CELLS, robust_span

OFFSETS = np.arange(-5, 8)
PART = OFFSETS / 10


def curve(count: int, turn: float = 0.0) -> np.ndarray:
    """A helix [pos, 3]."""
    at = np.linspace(0, 9, count)
    return np.stack([np.cos(at + turn), np.sin(at + turn), at / 3 - 1.5], axis=-1)


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The first trace whose name starts with `name`."""
    return next(trace for trace in figure.data if trace.name and trace.name.startswith(name))


def titles(figure: go.Figure) -> tuple[str, str]:
    """The titles of the x-axis and the y-axis."""
    return figure.layout.xaxis.title.text, figure.layout.yaxis.title.text


def xyz(trace: go.Scatter3d) -> np.ndarray:
    """The points [pos, 3] of a trace."""
    return np.stack([trace.x, trace.y, trace.z], axis=-1)


def decoded(figure: go.Figure) -> np.ndarray:
    """The pixels [row, column, RGBA] of a map's picture."""
    source = next(trace.source for trace in figure.data if trace.type == "image")
    picture = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA"))


def luminance(rgb: np.ndarray) -> np.ndarray:
    """Relative luminance of colours [..., 3] in 0 to 255."""
    part = np.asarray(rgb) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


# palette and words


def test_diverging_scale_rises_in_luminance_around_a_neutral_grey() -> None:
    """In print, below 0 stays darker than above; the middle stands out on white and near-black."""
    light = luminance(scale_rgb(np.linspace(0, 1, 51), DIVERGING))
    assert (np.diff(light) > 0).all()
    middle = scale_rgb(np.array(0.5), DIVERGING)
    assert 1 == len(set(middle.tolist()))
    page = luminance(np.array(hex_to_rgb("#11181e")))
    assert (light[25] + 0.05) / (page + 0.05) > 3
    assert 1.05 / (light[25] + 0.05) > 3


def test_scale_rgb_still_takes_plasma_by_default() -> None:
    """Its ends are those of the scale."""
    np.testing.assert_array_equal(scale_rgb(np.array([0.0, 1.0]))[0], hex_to_rgb(SCALE[0]))
    np.testing.assert_array_equal(scale_rgb(np.array([0.0, 1.0]))[1], hex_to_rgb(SCALE[-1]))


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
    """Between single quotation marks, always."""
    assert f"\N{LEFT SINGLE QUOTATION MARK}{shown}\N{RIGHT SINGLE QUOTATION MARK}" == quoted(token)


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.99123, "99.1 %"), (0.00042, "0.042 %"), (1e-6, "< 0.01 %"), (0.0, "0 %"), (1.0, "100 %")],
)
def test_percent_is_short(probability: float, text: str) -> None:
    """Three digits from 1 % on, two below."""
    assert text == percent(probability)


# helix


def test_helix_alone_is_coloured_by_position() -> None:
    """The points are the given ones, the colour bar has the unit, the titles tell the variance."""
    points, positions = curve(40), 4 + np.arange(40)
    figure = helix_3d(points, positions, title="helix", shares=np.array([0.33, 0.2, 0.046]))
    (line,) = figure.data
    np.testing.assert_allclose(points, xyz(line), rtol=1e-4, atol=1e-9)
    np.testing.assert_array_equal(positions, line.marker.color)
    np.testing.assert_array_equal(positions, line.line.color)
    np.testing.assert_array_equal(positions, line.customdata)
    assert "position (tokens)" == line.marker.colorbar.title.text
    assert "position %{customdata:d}" in line.hovertemplate
    scene = figure.layout.scene
    assert "component 1 (33 % of variance)" == scene.xaxis.title.text
    assert "component 3 (4.6 % of variance)" == scene.zaxis.title.text
    assert scene.uirevision == figure.layout.uirevision == "helix"


def test_helix_beside_another_is_vermillion_and_thick_the_other_blue_and_thin() -> None:
    """The other may have its own length; group averages are larger marks with an outline."""
    points = curve(40)
    figure = helix_3d(
        points, np.arange(40), title="both", name="layer 2", other=2 * curve(30),
        groups=points.reshape(8, 5, 3).mean(1),
    )  # fmt: skip
    ours, other, groups = (named(figure, name) for name in ("layer 2", "W_pos", "group"))
    assert (VERMILLION, BLUE) == (ours.line.color, other.line.color)
    assert ours.line.width > other.line.width
    np.testing.assert_allclose(2 * curve(30), xyz(other), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(points[:5].mean(0), xyz(groups)[0], rtol=1e-4)
    assert groups.marker.size > ours.marker.size
    assert groups.marker.line.width > 0
    assert "component 2" == figure.layout.scene.yaxis.title.text
    assert figure.layout.scene.xaxis.range[1] > 2 * curve(30)[:, 0].max()


def test_helix_box_is_true_to_the_data_unless_it_were_flat() -> None:
    """Sides 4 : 2 : 0 become 1 : 0.5 : the least."""
    points = np.array([[0.0, 0, 1], [4, 2, 1], [2, 1, 1]])
    ratio = helix_3d(points, np.arange(3), title="flat").layout.scene.aspectratio
    assert ratio.x == pytest.approx(2 * ratio.y)
    assert ratio.x == pytest.approx(2.5 * ratio.z)


def test_helix_frames_morph_from_layer_to_layer_on_fixed_axes() -> None:
    """Frames named by layer hold its points, those between are mixtures without a hover."""
    layers = np.stack([curve(20, turn) for turn in (0.0, 0.4, 0.8)])
    shares = np.array([[0.5, 0.2, 0.1], [0.4, 0.2, 0.1], [0.3, 0.2, 0.1]])
    figure = helix_frames(layers, np.arange(20), title="all", shares=shares)
    frames = {frame.name: frame for frame in figure.frames}
    assert 3 + 2 * BETWEEN == len(frames)
    np.testing.assert_allclose(layers[0], xyz(figure.data[0]), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(layers[2], xyz(frames["2"].data[0]), rtol=1e-4, atol=1e-9)
    between = figure.frames[1]
    mixed = layers[0] + (layers[1] - layers[0]) / (BETWEEN + 1)
    np.testing.assert_allclose(mixed, xyz(between.data[0]), rtol=1e-4, atol=1e-4)
    assert ("skip", "all") == (between.data[0].hoverinfo, frames["1"].data[0].hoverinfo)
    assert "component 1 (40 % of variance)" == frames["1"].layout.scene.xaxis.title.text
    assert [("0",), ("1",), ("2",)] == [
        tuple(step.args[0]) for step in figure.layout.sliders[0].steps
    ]
    low, high = figure.layout.scene.xaxis.range
    assert low < layers[..., 0].min() < layers[..., 0].max() < high
    assert "every" not in figure.layout.title.text


def test_helix_frames_thin_long_curves_and_say_so() -> None:
    """1000 positions: every second; 12 layers stay below a megabyte."""
    layers = np.stack([curve(1000, turn) for turn in np.linspace(0, 1, 12)])
    figure = helix_frames(layers, np.arange(1000), title="all")
    np.testing.assert_array_equal(np.arange(0, 1000, 2), figure.data[0].customdata)
    assert {500} == {len(frame.data[0].x) for frame in figure.frames}
    assert "every 2nd position" in figure.layout.title.text
    assert len(figure.to_json()) < 600_000
    json.loads(figure.to_json())


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: helix_3d(np.ones((5, 2)), np.arange(5), title=""), "3 components"),
        (lambda: helix_3d(np.ones((5, 3)), np.arange(4), title=""), r"\[4 positions"),
        (lambda: helix_3d(curve(5), np.arange(5), title="", other=np.ones((5, 2))), "3 components"),
        (lambda: helix_frames(np.ones((2, 5, 3)), np.arange(4), title=""), r"\[4 positions"),
        (
            lambda: helix_frames(
                np.ones((2, 5, 3)), np.arange(5), title="", shares=np.ones((3, 3))
            ),
            r"\[2 layers, 3\], received \[3, 3\]",
        ),
        (lambda: angle_matrix(np.ones((3, 2)), title="", labels=["0", "1"]), "3 x 2"),
        (lambda: angle_matrix(np.ones((3, 3)), title="", labels=["0"]), "received 1 labels"),
        (lambda: layer_lines({"a": np.ones(3), "b": np.ones(2)}, y_title=""), r"\[3, 2\]"),
        (lambda: next_token_bars(["a"], np.ones(2), np.ones(1)), r"1 probabilities, received \[2"),
        (lambda: loss_by_position(np.arange(3), np.ones(3), np.ones(2), title=""), "3 values"),
        (lambda: kl_by_position(np.arange(3), np.ones(4), title=""), "3 values"),
        (
            lambda: loss_by_group(np.array([1, 5]), np.ones(2), np.ones(1), title=""),
            "each of 2 groups, received 2 and 1",
        ),
        (
            lambda: tangent_figure(OFFSETS, PART, PART[:-1], PART, PART, None, title=""),
            r"13 values, one per offset, received \[12\]",
        ),
        (
            lambda: score_profile_figure(np.arange(5), np.ones(5), np.ones(5), title=""),
            r"\[-1\] are missing",
        ),
        (lambda: stage_map(np.full((3, 3), -np.inf), title=""), "all 9 values are masked"),
        (lambda: stage_map(np.eye(3), title="", span=(1.0, 1.0)), "low < high"),
        (lambda: stage_map(np.eye(3), title="", tokens=["a", "b"]), "at least 3 tokens"),
        (lambda: stage_map(np.eye(3), title="", window=(2, 2)), "start < stop"),
    ],
)
def test_wrong_shapes_are_named(draw: Callable[[], go.Figure], message: str) -> None:
    """One sentence with what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        draw()


# layers


def test_variance_bars_stack_shares_in_percent() -> None:
    """Bars are the shares, hover tells the cumulative share, later components are left out."""
    shares = np.array([[0.5, 0.25, 0.125], [0.4, 0.3, 0.2]])
    figure = variance_bars(shares, most=2)
    assert 2 == len(figure.data)
    np.testing.assert_allclose(figure.data[1].y, [25, 30])
    np.testing.assert_allclose(figure.data[1].customdata, [75, 70])
    assert "stack" == figure.layout.barmode
    assert ("layer", "share of the variance (%)") == titles(figure)


def test_angle_matrix_has_degrees_on_a_fixed_scale_and_numbers_while_they_fit() -> None:
    """0 to 90, numbers up to 16 layers."""
    angles = np.array([[0.0, 30], [30, 0]])
    cells = (figure := angle_matrix(angles, title="A", labels=["W_pos", "2"])).data[0]
    assert (0, 90) == (cells.zmin, cells.zmax)
    np.testing.assert_array_equal(angles, cells.z)
    assert "%{z:.0f}" == cells.texttemplate
    assert "angle (°)" in [note.text for note in figure.layout.annotations]
    many = angle_matrix(np.zeros((17, 17)), title="A", labels=[f"{n}" for n in range(17)])
    assert many.data[0].texttemplate is None


def test_layer_lines_differ_by_more_than_colour() -> None:
    """Each has its mark and dash; errors belong to the series of their name."""
    values = {"sparsity": np.array([3.0, 2, 1]), "spread": np.array([1.0, 2, 3])}
    figure = layer_lines(values, y_title="share (%)", errors={"spread": np.full(3, 0.5)})
    one, two = figure.data
    np.testing.assert_array_equal([3, 2, 1], one.y)
    assert one.marker.symbol != two.marker.symbol
    assert one.line.dash != two.line.dash
    np.testing.assert_array_equal(np.full(3, 0.5), two.error_y.array)
    assert one.error_y.array is None
    assert ("layer", "share (%)") == titles(figure)


# stages


def test_small_stage_map_names_tokens_and_leaves_hidden_cells_empty() -> None:
    """The tokens of true positions, at the axes and on hover; -inf is hidden as NaN is."""
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
    assert ("key position i (tokens)", "query position n (tokens)") == titles(figure)


def test_stage_map_of_more_rows_has_round_positions_as_ticks() -> None:
    """50 rows from 103 on: every fifth position, at its row."""
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
    assert "score (nats)" in [note.text for note in figure.layout.annotations]


def test_spans_of_probabilities_and_of_equal_values() -> None:
    """Probabilities reach from 0 to the largest, and equal values still make a scale."""
    assert (0.0, 0.9) == robust_span(np.array([[0.9, np.nan], [0.0, 0.1]]))
    assert (2.0, 3.0) == robust_span(np.full((2, 2), 2.0))
    assert (-1.0, 1.0) == robust_span(np.zeros((2, 2)), diverging=True)


def test_large_stage_map_is_a_picture_with_the_right_pixels_and_a_colour_bar() -> None:
    """67 x 71 cells: colours decode to cells, hidden ones are transparent."""
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
    assert (np.float32(values[0, 0]), 9, 5) == (bar.z[0, 0], bar.y[0], bar.x[0])
    assert (75.5, 8.5) == tuple(figure.layout.yaxis.range)
    assert "query %{y} → key %{x}" in picture.hovertemplate


def test_largest_maps_are_smoothed_and_travel_light() -> None:
    """1024 x 1024 of noise stays near a megabyte; a smaller map keeps its sharp cells."""
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


def test_difference_map_is_symmetric_about_zero() -> None:
    """Up to the largest difference; none at all is grey."""
    cells = difference_map(np.array([[0.1, np.nan], [-0.4, 0.0]]), title="D").data[0]
    assert (pytest.approx(-0.4), pytest.approx(0.4)) == (cells.zmin, cells.zmax)
    assert DIVERGING[-1] == cells.colorscale[-1][1]
    assert (-1, 1) == (lambda c: (c.zmin, c.zmax))(
        difference_map(np.zeros((2, 2)), title="").data[0]
    )


# tangent


def test_tangent_figure_is_relative_to_the_mean_with_the_future_on_the_right() -> None:
    """Each part without its mean; the future begins right of the dotted line at 0."""
    observed = np.where(OFFSETS == 0, -3.0, PART)
    figure = tangent_figure(OFFSETS, PART + 7, PART, 0 * PART, 0 * PART, observed, title="L2H2")
    score = named(figure, "position only")
    np.testing.assert_array_equal(OFFSETS, score.x)
    np.testing.assert_allclose(PART - PART.mean(), score.y, atol=1e-12)
    assert ("dash", "markers" in named(figure, "raw score").mode) == (
        named(figure, "tangent").line.dash, True,
    )  # fmt: skip
    line, shade = figure.layout.shapes
    assert ("dot", 0) == (line.line.dash, line.x0)
    assert 0.5 == shade.x0
    assert shade.x1 >= OFFSETS.max()
    assert "future, masked" in [note.text for note in figure.layout.annotations]
    assert (
        "key relative to the query, i − n (tokens)",
        "score − its mean (natural log of attention)",
    ) == titles(figure)
    assert 4 == len(tangent_figure(OFFSETS, *[PART] * 4, None, title="").data)


def test_score_profile_measures_the_kink_against_the_straight_line() -> None:
    """A straight profile with k = 0 lowered by 2 and k = 1 raised by 0.5."""
    mean = 1 - 0.1 * OFFSETS - 2 * (OFFSETS == 0) + 0.5 * (OFFSETS == 1)
    figure = score_profile_figure(OFFSETS, mean, np.full(13, 0.05), title="kink")
    current, previous = named(figure, "current token"), named(figure, "previous token")
    assert ("current token: −2.00", "previous token: +0.50") == (current.name, previous.name)
    assert (0, mean[OFFSETS == 0][0]) == (current.x[0], current.y[0])
    line = named(figure, "line through")
    np.testing.assert_allclose(line.y, 1 - 0.1 * np.array(line.x))
    assert "dash" == line.line.dash
    np.testing.assert_allclose(figure.data[0].y, mean - 0.05)
    np.testing.assert_allclose(named(figure, "± 1 s.e.").y, mean + 0.05)
    low, high = figure.layout.xaxis.range
    assert low > 7 > -5 > high
    assert -0.5 == figure.layout.shapes[1].x0
    assert "offset k = n − i (tokens), future keys < 0" == figure.layout.xaxis.title.text


# effects


def test_next_token_bars_are_sorted_by_the_clean_run() -> None:
    """In percent, likeliest on top, with values as text; equal names keep their own bars."""
    figure = next_token_bars(
        ["x", " pirate", " turtle", "x"],
        np.array([0.001, 0.004, 0.99, 0.002]),
        np.array([0.0, 0.65, 0.26, 0.03]),
    )
    clean, changed = figure.data
    np.testing.assert_allclose(clean.x, [99, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(changed.x, [26, 65, 3, 0])
    axis = figure.layout.yaxis
    assert tuple(map(quoted, (" turtle", " pirate", "x", "x"))) == tuple(axis.ticktext)
    assert 4 == len(set(axis.tickvals))
    assert "reversed" == axis.autorange
    assert ("26 %", "65 %", "3 %", "0 %") == tuple(changed.text)
    assert changed.marker.pattern.shape != clean.marker.pattern.shape
    assert "probability of the next token (%)" == figure.layout.xaxis.title.text
    assert figure.layout.xaxis.range[1] > 99


def test_loss_and_kl_by_position_have_nats() -> None:
    """Clean solid, changed dotted."""
    at = np.arange(3, 6)
    figure = loss_by_position(at, np.array([3.0, 2, 1]), np.array([4.0, 3, 2]), title="loss")
    clean, changed = named(figure, "clean"), named(figure, "changed")
    np.testing.assert_array_equal(at, clean.x)
    np.testing.assert_array_equal([4, 3, 2], changed.y)
    assert clean.line.dash != changed.line.dash
    assert ("position (tokens)", "loss (nats per token)") == titles(figure)
    kl = kl_by_position(at, np.array([0.1, 0.2, 0.3]), title="KL")
    assert ("position (tokens)", "KL(clean ‖ changed) (nats)") == titles(kl)


def test_loss_by_group_marks_the_clean_run() -> None:
    """Sorted on a log axis with a tick per group; a group of 1 has its own mark and level."""
    figure = loss_by_group(
        np.array([10, 1, 5]), np.array([3.5, 3.0, 3.2]), np.array([0.3, 0.1, 0.2]), title="loss"
    )
    (line,) = figure.data
    np.testing.assert_array_equal([1, 5, 10], line.x)
    np.testing.assert_array_equal([3.0, 3.2, 3.5], line.y)
    np.testing.assert_array_equal([0.1, 0.2, 0.3], line.error_y.array)
    assert ["diamond", "circle", "circle"] == list(line.marker.symbol)
    assert 3.0 == figure.layout.shapes[0].y0
    assert ("log", ("1", "5", "10")) == (
        figure.layout.xaxis.type, tuple(figure.layout.xaxis.ticktext)
    )  # fmt: skip
    assert "loss (nats per token)" == figure.layout.yaxis.title.text
    without = loss_by_group(np.array([5]), np.array([3.2]), np.array([0.2]), title="")
    assert not without.layout.shapes
