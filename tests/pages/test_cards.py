"""Cards: a figure that everybody clicks for is made once."""

import numpy as np
import plotly.graph_objects as go
import pytest

from pages.shared.cards import card as cards
from poskernel_core.common.result import Result
from poskernel_core.plotting.layout import set_title


def result(head: int, model: str = "m") -> Result:
    whole = Result(
        "etc",
        {"skip": 4},
        {"etc": np.arange(5.0)},
        {"etc": ("head",)},
        {"etc": "tokens"},
        provenance={"model": model},
    )
    return whole.select(head=head)


@pytest.fixture
def drawn(monkeypatch):
    """What a card would draw, and how often a figure was made for it; the page may be dark."""
    made, night = [], [False]
    monkeypatch.setattr(cards, "dark", lambda: night[0])

    def draw(name="kernel", of=None, also=False, dark=False):
        night[0] = dark

        def make():
            made.append(name)
            figure = go.Figure(go.Scatter(y=[1.0, 2.0], showlegend=False), {"margin": {"t": 40}})
            return set_title(figure, f"no. {len(made)}")

        return cards.kept(name, make, of or result(3), also)

    cards.kept.cache.clear()
    yield draw, made
    cards.kept.cache.clear()


def test_the_same_is_made_once(drawn):
    draw, made = drawn
    first = draw()

    assert first is draw()
    assert first is draw(of=result(3))
    assert ("no. 1", None) == (first.title, first.figure.layout.title.text)
    assert 1 == len(made)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "profile"},
        {"of": result(2)},
        {"of": result(3, "n")},
        {"also": True},
        {"dark": True},
    ],
)
def test_anything_else_is_made_anew(drawn, other):
    draw, made = drawn

    assert draw() is not draw(**other)
    assert 2 == len(made)
