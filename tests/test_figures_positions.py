"""The figures of positions, stages and interventions draw the given numbers, with units."""

import json
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.colors import hex_to_rgb

from poskernel_core.analyses.helix.drawing import (
    angle_matrix,
    helix_3d,
    helix_frames,
    layer_lines,
    variance_bars,
)
from poskernel_core.analyses.interventions.figures import (
    kl_by_position,
    loss_by_group,
    loss_by_position,
    next_token_bars,
)
from poskernel_core.plotting.palette import BLUE, SCALE, VERMILLION, scale_rgb
from poskernel_core.plotting.patterns import stage_map
from poskernel_core.plotting.scene import BETWEEN
from poskernel_core.plotting.scores import score_profile_figure, tangent_figure

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


def test_scale_rgb_still_takes_plasma_by_default() -> None:
    """Its ends are those of the scale."""
    np.testing.assert_array_equal(scale_rgb(np.array([0.0, 1.0]))[0], hex_to_rgb(SCALE[0]))
    np.testing.assert_array_equal(scale_rgb(np.array([0.0, 1.0]))[1], hex_to_rgb(SCALE[-1]))


def test_helix_alone_is_coloured_by_position() -> None:
    """The points are the given ones, the colour bar has the unit, the titles tell the variance."""
    points, positions = curve(40), 4 + np.arange(40)
    figure = helix_3d(points, positions, title="helix", shares=np.array([0.33, 0.2, 0.046]))
    (line,) = figure.data
    np.testing.assert_allclose(points, xyz(line), rtol=1e-4, atol=1e-9)
    np.testing.assert_array_equal(positions, line.marker.color)
    np.testing.assert_array_equal(positions, line.line.color)
    np.testing.assert_array_equal(positions, line.customdata)
    bar = line.marker.colorbar
    assert ("position (tokens)", "h", 0) == (bar.title.text, bar.orientation, bar.y)
    assert "position %{customdata:d}" in line.hovertemplate
    scene = figure.layout.scene
    assert "component 1 (33 %)" == scene.xaxis.title.text
    assert "component 3 (4.6 %)" == scene.zaxis.title.text
    assert 0.1 < scene.domain.y[0] < scene.domain.y[1] == 1
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
    assert "component 1 (40 %)" == frames["1"].layout.scene.xaxis.title.text
    assert [("0",), ("1",), ("2",)] == [
        tuple(step.args[0]) for step in figure.layout.sliders[0].steps
    ]
    low, high = figure.layout.scene.xaxis.range
    assert low < layers[..., 0].min() < layers[..., 0].max() < high
    assert "every" not in figure.layout.title.text
    alone = helix_frames(layers[:1], np.arange(20), title="one", shares=shares[:1])
    assert ((), (), ()) == (alone.frames, alone.layout.sliders, alone.layout.updatemenus)


def test_helix_frames_thin_long_curves_and_say_so() -> None:
    """1000 positions: every second; 12 layers stay below a megabyte."""
    layers = np.stack([curve(1000, turn) for turn in np.linspace(0, 1, 12)])
    figure = helix_frames(layers, np.arange(1000), title="all")
    np.testing.assert_array_equal(np.arange(0, 1000, 2), figure.data[0].customdata)
    assert {500} == {len(frame.data[0].x) for frame in figure.frames}
    assert "every 2nd position" in figure.layout.title.text
    assert len(figure.to_json()) < 600_000
    json.loads(figure.to_json())


@pytest.mark.usefixtures("unchecked")
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
