"""Figures of the bag, of neurons and sub-latents; what is said of a bag that predicts badly."""

import numpy as np
import pytest

from pages.contextual_neurons import bag
from poskernel_core.analyses.bag import figures as draw
from poskernel_core.analyses.bag.quality import mean_kernel
from poskernel_core.plotting.layout import quoted
from tests.support.made_results import answer, check_curve, named, result

HOSTILE = "<b>\n"
SHOWN = quoted(HOSTILE)[:-1]
"""How a hostile word begins in a figure."""
WORDS = ["<b>", " server", "rows\n", "x", " y", "z", "w"]


def neurons(word="a"):
    """Contextual neurons, of whose tokens each is the same word."""
    words = np.full((31, 7), word, object).tolist()
    return answer("contextual-neurons", sizes={"neuron": 31, "rank": 7},
                  texts={"top_words": words, "bottom_words": words})  # fmt: skip


def neuron(count=97):
    """One neuron's tokens, of which up to seven of either end are listed."""
    found = answer("neuron", sizes={"neuron": 31, "token": count, "rank": min(7, count)})
    values = found.values["contribution"]
    values[:] = np.random.default_rng(5).normal(size=count)
    order = np.argsort(values)
    found.values["top_value"][:] = values[order[::-1][:7]]
    found.values["bottom_value"][:] = values[order[:7]]
    return found


def latents(shares=(0.5, 0.2), rest=0.1):
    """A result of sub-latents, largest share first."""
    count = len(shares)
    ids = np.arange(7 * count).reshape(count, 7) % len(WORDS)
    return result(
        "neuron-latents",
        {"weight": (count,)},
        {"top": ids, "bottom": ids[:, ::-1], "share": np.array(shares), "rest": np.array(rest)},
        texts={"top_words": np.array(WORDS, dtype=object)[ids]},
    )


def scores(count=23):
    """A result of the scores of words, by neuron."""
    return result("word-neurons", {"score": (count,)}, texts={"words": WORDS[:2]})


def test_shares_others_and_rest():
    bar = draw.latents(latents()).data[0]

    assert ("1", "2", "others", "rest") == tuple(bar.x)
    np.testing.assert_allclose([0.5, 0.2, 0.2, 0.1], bar.y)
    assert "&lt;b&gt;" in bar.customdata[0]
    everything = draw.latents(latents((0.7, 0.4), -0.1)).data[0]
    assert 0 == everything.y[2]


def test_scores_ranked():
    found = scores()
    figure = draw.ranked_scores(found)

    (line,) = figure.data
    assert sorted(found.values["score"], reverse=True) == list(line.y)
    assert found.values["score"][line.customdata].tolist() == list(line.y)
    named = [int(note.text) for note in figure.layout.annotations]
    order = list(line.customdata)
    assert order[:5] + order[-5:] == named


def test_every_neuron_once_with_its_number_first() -> None:
    found = neurons()
    figure = draw.neurons(found, 3, "fires")
    rest, first = figure.data[:2]
    numbers = np.array([row[0] for trace in (rest, first) for row in trace.customdata])
    assert list(range(31)) == sorted(numbers)
    x, y = (np.concatenate([rest[axis], first[axis]]) for axis in "xy")
    np.testing.assert_array_equal(found.values["drive_share"][numbers], x)
    np.testing.assert_array_equal(found.values["r2"][numbers], y)
    largest = np.argsort(-found.values["fires"])[:10]
    np.testing.assert_array_equal(largest, [row[0] for row in first.customdata])
    ring = named(figure, "chosen")
    assert (found.values["drive_share"][3], found.values["r2"][3]) == (ring.x[0], ring.y[0])
    assert 3 == ring.customdata[0][0]


def test_hover_escapes_words_and_cuts_long_ones() -> None:
    found = neurons(HOSTILE + "x" * 100)
    hover = draw.neurons(found, 0, "drive").data[0].customdata[0][1]
    assert SHOWN in hover
    assert HOSTILE not in hover
    assert "x" * 18 not in hover


def test_neurons_without_share_or_far_below() -> None:
    """Zero has no place on a log axis, R² of -50 none beside 1; the triangle points down."""
    found = neurons()
    found.values["drive_share"][4] = 0.0
    found.values["r2"][4], found.values["r2"][5], found.values["drive"][4] = -50.0, np.nan, 0.0
    figure = draw.neurons(found, 4, "drive")
    rest = figure.data[0]
    (at,) = (i for i, row in enumerate(rest.customdata) if row[0] == 4)
    least = found.values["drive_share"][found.values["drive_share"] > 0].min()
    assert 10 ** figure.layout.xaxis.range[0] < rest.x[at] < least
    assert (-1, "triangle-down") == (rest.y[at], rest.marker.symbol[at])
    assert (rest.x[at], -1) == (named(figure, "chosen").x[0], named(figure, "chosen").y[0])


@pytest.mark.parametrize("large", [False, True])
def test_kernel_over_the_offset(large: bool) -> None:
    found = neurons()
    kernel = found.values["kernel"]
    kernel[0] = 50.0 if large else 0.2
    figure = mean_kernel(found)
    check_curve(figure.data[0], np.arange(11), kernel[::-1])
    assert large == len(figure.layout.annotations)


@pytest.mark.parametrize("count", [1, 97])
def test_contributions_name_the_ends(count: int) -> None:
    found = neuron(count)
    figure = draw.contributions(found)
    assert count == np.sum(figure.data[0].y)
    notes = figure.layout.annotations
    assert 2 * min(3, count // 2) == len(notes)
    values = np.sort(found.values["contribution"])
    named_ends = np.r_[values[: len(notes) // 2], values[count - len(notes) // 2 :]]
    np.testing.assert_array_equal(named_ends, sorted(note.x for note in notes))


def test_a_neuron_along_a_text() -> None:
    words = [f"{HOSTILE}{place}" for place in range(11)]
    trace = answer("neuron-trace", text="", item="<u>Genesis</u>", texts={"tokens": words})
    figure = draw.along_text(trace, True)
    assert all(quoted(f"{HOSTILE}10") == curve.customdata[10][0] for curve in figure.data)
    assert "<u>" not in figure.layout.title.text


def test_relatives_of_a_neuron() -> None:
    found = neuron()
    related, cosine = found.values["related"], found.values["output_cosine"]
    related[[2, 9]] = [-0.999, np.nan]
    figure = draw.relatives(found)
    every, first, ring = figure.data
    np.testing.assert_array_equal(np.arange(31)[:, None], every.customdata)
    expected = [n for n in np.argsort(-np.nan_to_num(np.abs(related))) if n != 4][:5]
    assert 2 == expected[0]
    assert {f"{n}" for n in expected} == {each.text for each in figure.layout.annotations}
    check_curve(first, y=cosine[expected])
    check_curve(ring, [related[4]], [cosine[4]])


@pytest.mark.parametrize(
    ("rows", "told"),
    [((-0.5, 0.04, -1.0), "R² is 0.04"), ((-0.5, -0.31), "is −0.31"), ((-0.5, 0.3), None),
     ((), None)],
)  # fmt: skip
def test_a_bag_that_hardly_predicts_is_told(monkeypatch, rows, told):
    boxes, found = [], answer("contextual-neurons", sizes={"variant": 4})
    monkeypatch.setattr(bag.st, "info", lambda text, **_: boxes.append(text))
    found.values["bag_centred_r2"][:] = np.nan
    for variant, row in enumerate(rows):
        found.values["bag_centred_r2"][variant, 1:4] = (row - 1, row, row + 0.1)
    bag.say_how_well(found)
    assert bool(told) == len(boxes)
    assert all(told in box for box in boxes)
