"""The helix and its layers as figures: the given points, on axes that stay."""

import numpy as np
import pytest

from poskernel_core.analyses.helix.scene import BETWEEN
from poskernel_core.analyses.views import figure_of
from tests.support.made_results import named, result

LAYERS, POSITIONS = 3, 40
BESIDE = "layer 0, on this layer's axes"
OFFSETS = np.arange(-5, 8)
PART = OFFSETS / 10


def helix(layers=LAYERS, positions=POSITIONS):
    """A result with a helix in every layer, turned a little, of the size 1 in all."""
    at = np.linspace(0, 9, positions) + 0.4 * np.arange(layers)[:, None]
    points = np.stack([np.cos(at), np.sin(at), np.zeros(at.shape)], axis=-1)
    shape = (layers, positions, 3)
    found = result(
        "helix",
        {
            "embedding_on_layer": shape,
            "group_5": (layers, positions // 5, 3),
            "explained_variance": (layers, 10),
            "angles_residual": (layers, layers, 2),
            "far_share": (layers,),
            "token_spread": (layers,),
        },
        {"projection": points},
        coordinates={
            "pos": np.arange(4, 4 + positions),
            "group_of_5": np.arange(4, 4 + positions, 5)[: positions // 5],
        },
    )
    found.params.update(prompts="repeated", far=3)
    found.provenance["position_scheme"] = "learned"
    return found


def xyz(trace):
    """The points [pos, 3] of a trace."""
    return np.stack([trace.x, trace.y, trace.z], axis=-1)


def test_a_layer_beside_layer_0_with_averages():
    found = helix()
    found.values["embedding_on_layer"] *= 3
    figure = figure_of(found.select(layer=2), span=(4, 40), group=5, overlay=BESIDE)
    ours, first, groups = (named(figure, name) for name in ("before layer 2", "W_pos", "group"))

    points, other = (found.values[n][2, :37] for n in ("projection", "embedding_on_layer"))
    np.testing.assert_allclose(points, xyz(ours), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(other, xyz(first), rtol=1e-4)
    np.testing.assert_allclose(found.values["group_5"][2, :7], xyz(groups), rtol=1e-4)


def test_the_box_is_true_to_the_data_unless_it_were_flat():
    """Sides 4 : 2 : 0 become 1 : 0.5 : the least."""
    found = helix(positions=5)
    found.values["projection"][0, :3] = (0.0, 0, 1), (4, 2, 1), (2, 1, 1)
    ratio = figure_of(found.select(layer=0), span=(4, 6)).layout.scene.aspectratio

    assert ratio.x == pytest.approx(2 * ratio.y)
    assert ratio.x == pytest.approx(2.5 * ratio.z)


def test_the_morph_from_layer_to_layer_on_fixed_axes():
    found = helix()
    figure, layers = figure_of(found), found.values["projection"]
    frames = {frame.name: frame for frame in figure.frames}

    assert 3 + 2 * BETWEEN == len(frames)
    np.testing.assert_allclose(layers[0], xyz(figure.data[0]), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(layers[2], xyz(frames["2"].data[0]), rtol=1e-4, atol=1e-9)
    between = figure.frames[1]
    mixed = layers[0] + (layers[1] - layers[0]) / (BETWEEN + 1)
    np.testing.assert_allclose(mixed, xyz(between.data[0]), rtol=1e-4, atol=1e-4)


def test_layers_of_any_size_are_drawn_alike():
    found = helix()
    found.values["projection"] *= np.array([0, 1, 50.0])[:, None, None]
    frames = {frame.name: frame.data[0] for frame in figure_of(found).frames}

    assert [0, 1, 1] == [pytest.approx(np.hypot(frames[n].x, frames[n].y).mean()) for n in "012"]


def test_a_long_morph_is_thinned_and_says_so():
    figure = figure_of(helix(12, 1000))

    np.testing.assert_array_equal(np.arange(4, 1004, 2), figure.data[0].customdata)
    assert {500} == {len(frame.data[0].x) for frame in figure.frames}


def test_numbers_of_layers():
    found = helix()
    shares = found.values["explained_variance"]
    bars = figure_of(found.only("explained_variance")).data
    np.testing.assert_allclose(bars[1].y, 100 * shares[:, 1])
    np.testing.assert_allclose(bars[1].customdata, 100 * shares[:, :2].sum(axis=1))
    cells = figure_of(found.only("angles_residual")).data[0]
    np.testing.assert_array_equal(found.values["angles_residual"].max(axis=-1), cells.z)
    drawn = [trace.y for trace in figure_of(found.only("far_share", "token_spread")).data]
    np.testing.assert_array_equal([found.values["far_share"], found.values["token_spread"]], drawn)


def tangents(tangent, radial, rest):
    """The figure of one head's scores, split so."""
    parts = {"tangent_part": tangent, "radial_part": radial, "rest": rest, "third_part": 0 * PART}
    score = {"position_score": tangent + radial + rest, "observed_score": 2 * PART}
    band = {"band": OFFSETS}
    whole = {name: each[None, None] for name, each in (parts | score).items()}
    found = result("tangent", {}, whole, {"query": 9}, coordinates=band).select(layer=0, head=0)
    return figure_of(found)


def test_parts_of_a_score_relative_to_their_means():
    """A part that varies more than the tangent is seen at once; the others wait for a click."""
    radial, rest, hidden = 2, 0.9, ["third direction and rest"]
    moved = PART + 100  # means do not count
    figure = tangents(PART, -radial * moved, rest * moved)

    assert hidden == [line.name for line in figure.data if line.visible == "legendonly"]
    drawn = {line.name: line.y for line in figure.data}
    middle = PART - PART.mean()
    np.testing.assert_allclose(-radial * middle, drawn["radial part"], atol=1e-12)
    np.testing.assert_allclose(rest * middle, drawn["third direction and rest"], atol=1e-12)
    np.testing.assert_allclose((1 - radial + rest) * middle, drawn["position only"], atol=1e-12)
    np.testing.assert_allclose(2 * middle, drawn["raw score in texts"], atol=1e-12)
