"""One card alone, as a script: one of every page, what stands in for one, the code."""

from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

from pages import NAMES
from pages.shared.cards.embed import frame_code
from pages.shared.jobs import results
from tests.support.bound import opened, opened_as_linked, walk
from tests.support.server import PATIENCE

QUICK = ("head", "helix", "position_sources")
WITHOUT_CARDS = ("compare", "methods", "own_text")
OPEN = "[Open the whole page]"


@pytest.fixture(autouse=True)
def engine(shipped_engine, monkeypatch):
    """An engine with nothing but what comes with the project, which the pages ask."""
    monkeypatch.setattr(results, "engine", lambda: shipped_engine)
    return shipped_engine


def key_of(node: Any) -> str:
    """The key of a container, or an empty string."""
    return str(getattr(node.proto, "id", "")).removeprefix("$$ID-").partition("-")[2]


def containers(app: AppTest) -> list[str]:
    return [key_of(each) for each in walk(app)]


def cards(app: AppTest) -> set[str]:
    assert [] == [each.value for each in app.exception]
    return {name.removeprefix("card-") for name in containers(app) if name.startswith("card-")}


def sentences(app: AppTest) -> list[str]:
    return [each.value.replace("\\", "") for each in (*app.error, *app.warning, *app.info)]


def texts(app: AppTest) -> list[str]:
    return [each.value for each in (*app.markdown, *app.caption, *app.info)]


def identities(app: AppTest) -> list[str]:
    lines = [each.value.replace("\\", "") for each in app.markdown]
    return [each for each in lines if OPEN in each]


def link_of(app: AppTest) -> str:
    (line,) = identities(app)
    return line.partition(f"{OPEN}(")[2].partition(")")[0]


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each not in QUICK)) for each in NAMES]
)
def test_a_card_of_a_page(name):
    whole = cards(opened(name))
    assert bool(whole) != (name in WITHOUT_CARDS)
    for card in sorted(whole)[-1:]:
        app = opened(name, embed=f"card:{card}")
        assert {card} == cards(app)
        (line,) = identities(app)
        assert "; PosKernel " in line
        assert ", run " in line
        assert link_of(app).endswith(f"#{card}")
        assert [] == [each.value for each in app.error]


def test_a_page_as_always_has_no_frame():
    for app in (opened("helix"), opened("helix", embed="true"), opened("helix", embed="")):
        assert len(cards(app)) > 1
        assert [] == identities(app)
        assert "alone" not in containers(app)


def test_the_identity_and_its_link(engine, monkeypatch):
    asked = {
        "model": "demo-gpt2",
        "head": "L1H3",
        "query": "255",
        "kinds": ["local", "uniform"],
        "log": "offset",
    }
    monkeypatch.setattr(results, "PATIENCE", 0.0)
    app = opened_as_linked("head", embed="card:kernel", **asked)
    assert set() == cards(app)  # it is late, and says already what it will be
    for run in ("", ", run "):
        (line,) = identities(app)
        assert f"demo-gpt2, L1H3, n = 255, corpus sample, 500 windows of 512 tokens{run}" in line
        link = urlsplit(link_of(app))
        assert ("", "kernel") == (link.path, link.fragment)
        given = parse_qs(link.query)
        assert asked == {key: value if value[1:] else value[0] for key, value in given.items()}
        assert [] == sentences(app)  # of what the page does not draw, nothing is said
        for job in engine.open_jobs():
            job.wait(PATIENCE)
        app.run()
    assert {"kernel"} == cards(app)


def vanishing() -> None:
    """A page whose slider is drawn only until the card is computed."""
    import streamlit as st

    from pages.shared.cards import embed
    from pages.shared.selection.fit import linked

    embed.begin_embed()
    runs = st.session_state["runs"] = st.session_state.get("runs", 0) + 1
    if runs == 1:
        st.slider("x", 0, 9, **linked("x"))
    st.slider("y", 0, 9, **linked("y"))
    st.markdown(embed.whole_page("a"))


def test_the_link_keeps_what_was_drawn_while_the_card_was_computed():
    app = AppTest.from_function(vanishing)
    app.query_params |= {"embed": "card:a", "x": "5", "y": "6", "z": "7"}
    for _ in range(3):
        app.run()
        assert {"x": ["5"], "y": ["6"], "z": ["7"]} == parse_qs(urlsplit(link_of(app)).query)
    app.slider(key="y").set_value(0).run()
    assert {"x": ["5"], "z": ["7"]} == parse_qs(urlsplit(link_of(app)).query)


def test_a_link_of_a_question():
    app = opened("", show="kernel", embed="card:kernel")
    assert {"kernel"} == cards(app)


def test_a_wrong_value_is_told():
    app = opened_as_linked("head", embed="card:kernel", head="L9H9")
    (told,) = sentences(app)
    assert told.startswith("The link asks for head L9H9")
    assert {"kernel"} == cards(app)


@pytest.mark.parametrize("asked", ["card:nothing", "card:", "kernel", "CARD:kernel"])
def test_no_such_card(asked):
    app = opened("helix", embed=asked)
    (said,) = sentences(app)
    expected = "Expected embed=card:NAME with a card of this page (helix, morph, variance, angles, "
    assert f"{expected}shape), got '{asked}'." == said
    assert set() == cards(app)
    assert "#" in link_of(app)


def test_a_page_that_lends_a_model_tells_too():
    """It shows another model than the first; the notice of that does not stand in for a card."""
    said, _ = sentences(opened_as_linked("helix", embed="card:x"))
    assert said.endswith("got 'card:x'.")
    assert "demo-gpt2" in identities(opened_as_linked("helix", embed="card:helix"))[0]


def test_a_model_without_what_a_page_needs_says_so():
    app = opened_as_linked("rotary_spectrum", model="demo-gpt2", embed="card:clocks")
    (said,) = sentences(app)
    assert "so its heads have no wavelengths" in said


def test_cards_that_wait_for_a_button_are_named_too():
    (said,) = sentences(opened("head", embed="card:nothing"))
    assert "examples)" in said


@pytest.mark.parametrize(("card", "key"), [("examples", "examples"), ("variation", "denominators")])
def test_the_button_of_a_card(card, key):
    """Of all buttons of the page, only that of the card asked for stands in the frame."""
    run = {"windows": "50", "context": "64"}
    app = opened("head", embed=f"card:{card}", **run)
    (frame,) = (each for each in walk(app) if key_of(each) == "waiting")
    shown = [each.key for each in walk(frame) if isinstance(each, Button)]
    assert [f"compute-{key}"] == [each for each in shown if each.startswith("compute-")]
    assert {"compute-examples", "compute-denominators"} < {each.key for each in app.button}


def test_the_reader_computes_a_card(near_worker, engine):
    """A card that nobody has computed says so; its button pressed, it takes its place."""
    app = opened("head", embed="card:examples", windows="50", context="64", query="47")
    assert set() == cards(app)
    assert any("Not computed yet: example texts of all heads." in each for each in texts(app))
    app.button(key="compute-examples").click().run()
    for job in engine.open_jobs():
        job.wait(PATIENCE)
    app.run()
    assert {"examples"} == cards(app)


def test_a_folded_card_is_there():
    app = opened("etc_heatmap", embed="card:texts-map")
    assert "compute-how-many" in [each.key for each in app.button]
    assert [] == sentences(app)


class Frame(HTMLParser):
    """Reads the attributes of the only element."""

    found: dict[str, str | None]

    def handle_starttag(self, tag, attrs):
        assert "iframe" == tag
        self.found = dict(attrs)


@pytest.mark.parametrize("text", ["plain", "a \"b\" <c> & 'd'", '"><script>alert(1)</script>'])
def test_the_code_of_a_frame_escapes(text):
    code = frame_code(f"http://a.org/?text={text}&embed=card:kernel", text, 650)
    frame = Frame()
    frame.feed(code)
    assert f"http://a.org/?text={text}&embed=card:kernel" == frame.found["src"]
    assert text == frame.found["title"]
    assert ("100%", "650", "lazy") == tuple(frame.found[k] for k in ("width", "height", "loading"))
    assert 1 == code.count("<iframe")
    assert "<script" not in code
