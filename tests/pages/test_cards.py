"""Cards: a figure of the same result is made once, for all readers."""

import json
from functools import partial

import numpy as np
import plotly.graph_objects as go
import pytest

import poskernel_core as pk
from pages.explore import page as explore
from pages.interventions.page import MODES
from pages.shared.cards import card, explained
from pages.shared.cards import figure as cards
from pages.shared.cards.explained import page_on
from pages.shared.run import current
from poskernel_core.common.result import Result
from poskernel_core.plotting.layout import set_title
from tests.support.bound import fine, opened, with_menu

MADE = []


def result(head: int = 3, model: str = "m", value: float = 0.0) -> Result:
    whole = Result(
        "etc",
        {"skip": 4},
        {"etc": np.arange(5.0) + value},
        {"etc": ("head",)},
        {"etc": "tokens"},
        provenance={"model": model},
    )
    return whole.select(head=head)


def figure_of(found: Result, reach: int = 8) -> go.Figure:
    MADE.append(reach)
    made = go.Figure(go.Scatter(y=[1.0, 2.0], showlegend=False), {"margin": {"t": 40}})
    return set_title(made, f"no. {len(MADE)}")


@pytest.fixture
def night(monkeypatch):
    """Whether the page is dark; nothing has been made yet."""
    dark = [False]
    monkeypatch.setattr(cards, "dark", lambda: dark[0])
    MADE.clear()
    return dark


def test_the_same_is_made_once(night):
    first = cards.ready(partial(figure_of, result(value=0.5)))
    assert first is cards.ready(partial(figure_of, result(value=0.5)))
    assert ("no. 1", None) == (first.title, go.Figure(json.loads(first.spec)).layout.title.text)
    assert 1 == len(MADE)


@pytest.mark.parametrize(
    "other",
    [
        partial(figure_of, result(2)),
        partial(figure_of, result(3, "n")),
        partial(figure_of, result(value=1e-9)),
        partial(figure_of, result(), reach=9),
        lambda: figure_of(result()),
    ],
)
def test_anything_else_is_made_anew(night, other):
    assert cards.ready(partial(figure_of, result())) is not cards.ready(other)


def test_a_dark_page_has_figures_of_its_own(night):
    light = cards.ready(partial(figure_of, result()))
    night[0] = True
    assert light is not cards.ready(partial(figure_of, result()))


def test_an_empty_figure_says_why(night):
    """As far as its answer tells it."""

    def empty(_: Result) -> go.Figure:
        return go.Figure(go.Scatter(y=[np.nan]), {"margin": {"t": 40}, "height": 300})

    bare = result()
    bare.provenance["layers_without_heads"] = {"2": "recurrent"}
    bare.chosen["layer"] = 2
    assert "Layer 2 has no heads: it is recurrent." in cards.ready(partial(empty, bare)).spec
    assert "Nothing to draw" in cards.ready(partial(empty, result())).spec


def test_where_a_number_comes_from(shipped):
    told = card.provenance_line(pk.show("etc", "demo-attn-2l", engine=shipped))
    for words in (
        "**demo\\-attn\\-2l**, revision main",
        "Corpus **sample**: 500 windows of 128 tokens",
        "First 4 keys skipped. float32 on cpu, ",
    ):
        assert words in told


def test_the_documentation_of_a_question(monkeypatch, tmp_path):
    """A concept with the name of its topic or its own, else the reference; none without a site."""
    for name in ("concepts/sink-anatomy", "reference/questions/sink-anatomy",
                 "concepts/foreseen-attention", "reference/questions/kernel"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.html").write_text("")
    monkeypatch.setattr(explained, "site", lambda: tmp_path)

    assert "docs/concepts/sink-anatomy.html" == page_on("sink-anatomy")
    assert "docs/concepts/foreseen-attention.html" == page_on("foreseen-attention")
    assert "docs/reference/questions/kernel.html" == page_on("kernel")
    assert page_on("etc") is None
    monkeypatch.setattr(explained, "site", lambda: None)
    assert page_on("kernel") is None


def test_a_head_stands_before_what_is_under_it(shipped_only, monkeypatch):
    """So that it moves nothing; but an open menu has what is drawn."""
    order: list[str] = []
    monkeypatch.setattr(card, "draw_head", lambda name, head: order.append(head.title))
    monkeypatch.setattr(explore, "chart", lambda name, *_, **__: order.append(name))
    app = fine(opened("explore"))
    title = "Attention entropy against effective token count"
    assert [title, "heads"] == order
    order.clear()
    fine(with_menu(app, "heads"))
    assert ["heads", title] == order


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "link", "names"),
    [
        ("helix", {}, {"angles"}),
        ("interventions", {}, {"loss", "patterns-whole"}),
        ("interventions", {"mode": MODES[1]}, {"patch-positions"}),
        ("position_vs_token", {"samples": "100"}, {"maps"}),
        ("positional_kernels", {}, {"map"}),
        ("previous_token", {"context": "256", "zoom": "100"}, {"stages-whole", "stages-window"}),
        ("rotary_spectrum", {"changed": "true"}, {"changed-pattern"}),
    ],
)
def test_all_that_a_card_draws_is_in_its_downloads(computed, monkeypatch, page, link, names):
    """In the order of the page, each with its title."""
    drawn, offered = {}, {}
    draw = cards.draw_ready

    def keep(name, ready, *args, **more):
        if (shown := current().card) is not None:
            drawn.setdefault(shown.title, []).append(ready.title)
        draw(name, ready, *args, **more)

    def head(name, figure, shown, *_rest):
        made = [cards.plain_title(each) for each in cards.made(figure)]
        offered[name] = made, drawn.setdefault(shown.title, [])

    monkeypatch.setattr(cards, "draw_ready", keep)
    monkeypatch.setattr(card, "_head", head)
    fine(opened(page, **{"context": "64", "windows": "20"} | link))
    several = {name: found for name, found in offered.items() if len(found[1]) > 1}
    assert names == several.keys()
    assert all(made == shown for made, shown in several.values())
