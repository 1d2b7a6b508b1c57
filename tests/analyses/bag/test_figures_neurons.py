"""The figures of the bag of tokens and of neurons."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.bag import figures as draw
from poskernel_core.analyses.bag.quality import bag_kernel_figure, quality_figure
from poskernel_core.plotting.layout import quoted
from tests.support import made_contextual as made
from tests.support.made_results import band_of, check_curve, named

SHOWN = quoted(made.HOSTILE)[:-1]
"""How a hostile word begins in a figure."""


@pytest.mark.parametrize("rank_by", ["drive", "drive_share", "fires"])
def test_every_neuron_once_with_its_number_first(rank_by: str) -> None:
    found = made.neurons()
    figure = draw.neurons_figure(found, 3, rank_by)
    rest, first = figure.data[:2]
    numbers = np.array([row[0] for trace in (rest, first) for row in trace.customdata])
    assert list(range(made.NEURONS)) == sorted(numbers)
    x, y = (np.concatenate([rest[axis], first[axis]]) for axis in "xy")
    np.testing.assert_array_equal(found.values["drive_share"][numbers], x)
    np.testing.assert_array_equal(found.values["r2"][numbers], y)
    largest = np.argsort(-found.values[rank_by])[:10]
    np.testing.assert_array_equal(largest, [row[0] for row in first.customdata])
    ring = named(figure, "chosen")
    assert (found.values["drive_share"][3], found.values["r2"][3]) == (ring.x[0], ring.y[0])
    assert 3 == ring.customdata[0][0]


def test_hover_escapes_words_and_cuts_long_ones() -> None:
    found = made.neurons(words=(made.HOSTILE + "x" * 100,))
    hover = draw.neurons_figure(found, 0, "drive").data[0].customdata[0][1]
    assert SHOWN in hover
    assert made.HOSTILE not in hover
    assert "x" * 18 not in hover


def test_neurons_without_share_or_far_below() -> None:
    """Zero has no place on a log axis, R² of -50 none beside 1; the triangle points down."""
    found = made.neurons()
    found.values["drive_share"][4] = 0.0
    found.values["r2"][4], found.values["r2"][5], found.values["drive"][4] = -50.0, np.nan, 0.0
    figure = draw.neurons_figure(found, 4, "drive")
    rest = figure.data[0]
    (at,) = (i for i, row in enumerate(rest.customdata) if row[0] == 4)
    least = found.values["drive_share"][found.values["drive_share"] > 0].min()
    assert 10 ** figure.layout.xaxis.range[0] < rest.x[at] < least
    assert (-1, "triangle-down") == (rest.y[at], rest.marker.symbol[at])
    assert (rest.x[at], -1) == (named(figure, "chosen").x[0], named(figure, "chosen").y[0])


@pytest.mark.parametrize("value", [0.0, np.nan, 0.3])
def test_one_neuron(value: float) -> None:
    found = made.neurons(1)
    found.values["drive_share"][:] = value
    figure = draw.neurons_figure(found, 0, "drive")
    assert np.isfinite(figure.layout.xaxis.range).all()
    assert figure.layout.xaxis.tickvals


@pytest.mark.parametrize("value", ["bag_r2", "bag_centred_r2", "bag_cosine"])
def test_quality_of_every_variant(value: str) -> None:
    found = made.neurons()
    figure = quality_figure(found, value)
    for variant, name in enumerate(made.VARIANTS):
        curve, at = named(figure, name), found.values[value][variant]
        check_curve(curve, found.coordinates["query"], at, found.errors[value][variant])
        np.testing.assert_allclose(1.1 * at, band_of(figure, name).y)
    assert figure.layout.yaxis.range[0] > -0.1


def test_quality_far_below_is_marked_under_the_axis() -> None:
    found = made.neurons()
    found.values["bag_r2"][1, 2], found.values["bag_r2"][2, 4:6] = -50.0, [-3.0, -1.5]
    figure = quality_figure(found, "bag_r2")
    rows = [trace for trace in figure.data if "below" in trace.name]
    assert [made.VARIANTS[index] for index in (1, 2)] == [row.legendgroup for row in rows]
    assert [[-50.0], [-3.0, -1.5]] == [list(row.customdata) for row in rows]
    assert [[11], [21, 26]] == [list(row.x) for row in rows]
    assert -1 > rows[0].y[0] > rows[1].y[0] > figure.layout.yaxis.range[0] > -2
    curve = named(figure, made.VARIANTS[2])
    assert np.isnan(curve.y[4:6]).all()
    assert 5 == np.isfinite(curve.y).sum()
    assert (-1, 1) == (figure.layout.yaxis.tickvals[0], figure.layout.yaxis.tickvals[-1])


def test_quality_without_errors_or_values() -> None:
    found = made.neurons()
    found.values["bag_cosine"][:] = found.errors["bag_cosine"][:] = np.nan
    assert np.isfinite(quality_figure(found, "bag_cosine").layout.yaxis.range).all()


@pytest.mark.parametrize("large", [False, True])
def test_kernel_over_the_offset(large: bool) -> None:
    found = made.neurons()
    kernel = found.values["kernel"]
    kernel[0] = 50.0 if large else 0.2
    figure = bag_kernel_figure(found)
    check_curve(figure.data[0], np.arange(13), kernel[::-1])
    assert large == len(figure.layout.annotations)
    assert kernel[1:].max() < figure.layout.yaxis.range[1] < 2


@pytest.mark.parametrize("count", [1, 3, made.TOKENS])
def test_contributions_name_the_ends(count: int) -> None:
    found = made.neuron(count)
    figure = draw.contributions_figure(found)
    assert count == np.sum(figure.data[0].y)
    notes = figure.layout.annotations
    assert 2 * min(3, count // 2) == len(notes)
    values = np.sort(found.values["contribution"])
    named_ends = np.r_[values[: len(notes) // 2], values[count - len(notes) // 2 :]]
    np.testing.assert_array_equal(named_ends, sorted(note.x for note in notes))
    low, high = figure.layout.xaxis.range
    assert low < values[0] <= values[-1] < high


@pytest.mark.parametrize("parts", [False, True])
def test_a_neuron_along_a_text(parts: bool) -> None:
    found = made.trace()
    figure = draw.trace_figure(found, parts)
    names = {"true": "true", "predicted": "predicted"}
    if parts:
        names |= {"bag": "bag of", "position": "position", "others": "other", "direct": "current"}
    assert len(names) == len(figure.data)
    for name, label in names.items():
        curve = named(figure, label)
        check_curve(curve, np.arange(17), found.values[name])
        assert quoted(f"{made.HOSTILE}16") == curve.customdata[16][0]
    assert "<u>" not in figure.layout.title.text


def test_relatives_of_a_neuron() -> None:
    found = made.neuron()
    related, cosine = found.values["related"], found.values["output_cosine"]
    related[[2, 9]] = [-0.999, np.nan]
    figure = draw.related_figure(found, 4)
    every, first, ring = figure.data
    check_curve(every, related, cosine)
    np.testing.assert_array_equal(np.arange(made.NEURONS)[:, None], every.customdata)
    expected = [n for n in np.argsort(-np.nan_to_num(np.abs(related))) if n != 4][:5]
    assert 2 == expected[0]
    assert {f"{n}" for n in expected} == {each.text for each in figure.layout.annotations}
    check_curve(first, y=cosine[expected])
    check_curve(ring, [1.0], [cosine[4]])


@given(st.lists(st.floats(-0.2, 1.0), min_size=made.NEURONS, max_size=made.NEURONS))
def test_numbers_of_relatives_stand_apart(cosines: list[float]) -> None:
    found = made.neuron()
    found.values["output_cosine"][:] = cosines
    notes = draw.related_figure(found, 4).layout.annotations
    for end in (-1, 1):
        some = [note for note in notes if end * note.x > 0]
        heights = [note.ay for note in some]
        assert [note.y for note in some] == sorted(note.y for note in some)
        assert all(np.diff(heights) > 0.08)
        assert all(height < 1 for height in heights)
