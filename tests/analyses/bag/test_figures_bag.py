"""Figures of the search in the bag and of sub-latents; what `show --html` draws of results."""

import numpy as np
import pytest

from pages.shared.tables.word_lists import joined
from poskernel_core.analyses.bag.figures import latents_figure, nearest_figure, scores_figure
from poskernel_core.analyses.drawing import figure_of
from tests.support import made_contextual as made

QUOTES = "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
WORDS = ["<b>", " server", "rows\n", "x", " y", "z", "w"]


def latents(shares=(0.5, 0.2), rest=0.1):
    """A result of sub-latents, largest share first."""
    count = len(shares)
    ids = np.arange(7 * count).reshape(count, 7) % len(WORDS)
    found = made.result(
        "neuron-latents",
        {"weight": (("latent",), (count,))},
        codes={"top": (("latent", "rank"), ids), "bottom": (("latent", "rank"), ids[:, ::-1])},
        texts={"top_words": np.array(WORDS, dtype=object)[ids]},
    )
    found.values["share"], found.axes["share"] = np.array(shares), ("latent",)
    found.values["rest"], found.axes["rest"] = np.array(rest), ()
    return found


def nearest():
    """A result of the nearest tokens."""
    shape = (("rank",), (len(WORDS),))
    return made.result("extended-embedding", {"cosine": shape, "plain_cosine": shape},
                       texts={"words": WORDS})  # fmt: skip


def scores(count=23):
    """A result of the scores of words, by neuron."""
    return made.result("word-neurons", {"score": (("neuron",), (count,))},
                       texts={"words": WORDS[:2]})  # fmt: skip


def test_shares_others_and_rest():
    """A bar for each sub-latent, one for those not listed, one for what is left; they add to 1."""
    bar = latents_figure(latents()).data[0]

    assert ("1", "2", "others", "rest") == tuple(bar.x)
    np.testing.assert_allclose([0.5, 0.2, 0.2, 0.1], bar.y)
    assert "&lt;b&gt;" in bar.customdata[0]
    assert "<b>" not in bar.customdata[0]
    everything = latents_figure(latents((0.7, 0.4), -0.1)).data[0]
    assert 0 == everything.y[2]


def test_nearest_tokens():
    """Cosines of extended and of plain embeddings side by side; words are shown as they are."""
    found = nearest()
    figure = nearest_figure(found)

    extended, plain = figure.data
    assert found.values["cosine"].tolist() == list(extended.y)
    assert found.values["plain_cosine"].tolist() == list(plain.y)
    shown = [word.strip(QUOTES) for word in figure.layout.xaxis.ticktext[:3]]
    assert ["&lt;b&gt;", "␣server", "rows⏎"] == shown


def test_scores_ranked():
    """Largest first, each with its neuron's number; five are named at either end."""
    found = scores()
    figure = scores_figure(found)

    (line,) = figure.data
    assert sorted(found.values["score"], reverse=True) == list(line.y)
    assert found.values["score"][line.customdata].tolist() == list(line.y)
    named = [int(note.text) for note in figure.layout.annotations]
    order = list(line.customdata)
    assert order[:5] + order[-5:] == named
    assert "&lt;b&gt;" in figure.layout.xaxis.title.text
    assert () == scores_figure(scores(7)).layout.annotations


@pytest.mark.parametrize(
    ("found", "axis"),
    [
        (made.heads(), "ETC"),
        (made.denominators(), "query position"),
        (made.weights(), "content weight"),
        (made.distances(), "head"),
        (made.additivity(), "head"),
        (made.neurons(), "share of variance"),
        (made.neuron(), "contribution"),
        (made.trace(), "position"),
        (latents(), "sub-latent"),
        (nearest(), "tokens"),
        (scores(), "neurons"),
    ],
    ids=lambda value: getattr(value, "analysis", ""),
)
def test_figure_of_every_result(found, axis):
    """`show --html` draws each of them."""
    if found.analysis == "contextual-heads":
        found.params.update({"broad": 0.3, "steady": 0.5})
    figure = figure_of(found)

    assert figure.data
    assert axis in figure.layout.xaxis.title.text


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
    """With `--head` the one value of the head that is a curve."""
    found.provenance["model"] = "m"
    one = found.select(layer=2, head=3)

    *_, curve = figure_of(one).data  # after its band
    assert one.values[value].tolist() == list(curve.y)
    assert one.errors[value].tolist() == list(curve.customdata)


def test_words_in_a_line():
    """A few tokens, spaces and breaks visible."""
    assert "<b>  ␣server  rows⏎" == joined(WORDS, 3)
