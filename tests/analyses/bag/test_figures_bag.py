"""Figures of the search in the bag and of sub-latents; what `show --html` draws of results."""

import numpy as np
import pytest

from poskernel_core.analyses.bag.figures import latents_figure, nearest_figure, scores_figure
from poskernel_core.analyses.drawing import figure_of
from tests.support import made_contextual as made
from tests.support.made_results import check_curve, result

WORDS = ["<b>", " server", "rows\n", "x", " y", "z", "w"]


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


def nearest():
    """A result of the nearest tokens."""
    shapes = dict.fromkeys(("cosine", "plain_cosine"), (len(WORDS),))
    return result("extended-embedding", shapes, texts={"words": WORDS})


def scores(count=23):
    """A result of the scores of words, by neuron."""
    return result("word-neurons", {"score": (count,)}, texts={"words": WORDS[:2]})


def test_shares_others_and_rest():
    bar = latents_figure(latents()).data[0]

    assert ("1", "2", "others", "rest") == tuple(bar.x)
    np.testing.assert_allclose([0.5, 0.2, 0.2, 0.1], bar.y)
    assert "&lt;b&gt;" in bar.customdata[0]
    everything = latents_figure(latents((0.7, 0.4), -0.1)).data[0]
    assert 0 == everything.y[2]


def test_nearest_tokens():
    found = nearest()
    figure = nearest_figure(found)

    extended, plain = figure.data
    assert found.values["cosine"].tolist() == list(extended.y)
    assert found.values["plain_cosine"].tolist() == list(plain.y)
    assert all("<" not in word and "\n" not in word for word in figure.layout.xaxis.ticktext)


def test_scores_ranked():
    found = scores()
    figure = scores_figure(found)

    (line,) = figure.data
    assert sorted(found.values["score"], reverse=True) == list(line.y)
    assert found.values["score"][line.customdata].tolist() == list(line.y)
    named = [int(note.text) for note in figure.layout.annotations]
    order = list(line.customdata)
    assert order[:5] + order[-5:] == named
    assert () == scores_figure(scores(7)).layout.annotations


@pytest.mark.parametrize(
    "found",
    [made.heads(), made.denominators(), made.weights(), made.distances(), made.additivity(),
     made.neurons(), made.neuron(), made.trace(), latents(), nearest(), scores()],
    ids=lambda found: found.analysis,
)  # fmt: skip
def test_figure_of_every_result(found):
    """`show --html` draws each of them."""
    if found.analysis == "contextual-heads":
        found.params.update({"broad": 0.3, "steady": 0.5})
    assert figure_of(found).data


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (made.heads(), "duplicate_attention"),
        (made.distances(), "distance"),
        (made.additivity(), "content_similarity"),
    ],
    ids=lambda value: getattr(value, "analysis", ""),
)
def test_figure_of_one_head(found, value):
    found.provenance["model"] = "m"
    one = found.select(layer=2, head=3)

    *_, curve = figure_of(one).data  # after its band
    check_curve(curve, y=one.values[value], error=one.errors[value])
