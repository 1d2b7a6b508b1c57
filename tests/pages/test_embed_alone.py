"""One card alone, as a script: one of every page, what stands in for one, the code."""

from html.parser import HTMLParser
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

from pages import NAMES
from pages.shared.cards.embed import frame_code
from pages.shared.jobs import results
from poskernel_core.analyses.how_many_texts.spec import NOT_BY_GROUPS
from poskernel_core.engine.engine import Engine
from tests.support.bound import bound, opened, opened_as_linked, walk, words
from tests.support.server import PATIENCE

QUICK = ("head", "helix", "position_sources")
WITHOUT_CARDS = ("compare", "methods", "own_text")
OPEN = "[Open the whole page]"


pytestmark = pytest.mark.usefixtures("shipped")


def key_of(node: Any) -> str:
    """The key of a container, or an empty string."""
    return str(getattr(node.proto, "id", "")).removeprefix("$$ID-").partition("-")[2]


def cards(app: AppTest) -> set[str]:
    assert [] == [each.value for each in app.exception]
    names = map(key_of, walk(app))
    return {name.removeprefix("card-") for name in names if name.startswith("card-")}


def sentences(app: AppTest) -> list[str]:
    return [each.value.replace("\\", "") for each in (*app.error, *app.warning, *app.info)]


def identities(app: AppTest) -> list[str]:
    return [line for line in words(app).splitlines() if OPEN in line]


def link_of(app: AppTest) -> SplitResult:
    (line,) = identities(app)
    return urlsplit(line.partition(f"{OPEN}(")[2].partition(")")[0])


def asked_of(app: AppTest) -> dict[str, list[str]]:
    return parse_qs(link_of(app).query)


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
        assert card == link_of(app).fragment
        assert [] == [each.value for each in app.error]


def test_a_page_as_always_has_no_frame():
    for app in (opened("helix"), opened("helix", embed="true"), opened("helix", embed="")):
        assert len(cards(app)) > 1
        assert [] == identities(app)
        assert "alone" not in map(key_of, walk(app))


def test_the_identity_and_its_link(empty, monkeypatch):
    asked = {
        "model": ["demo-gpt2"], "head": ["L1H3"], "query": ["255"], "log": ["attention"],
        "kinds": ["local", "uniform"],
    }  # fmt: skip
    monkeypatch.setattr(results, "PATIENCE", 0.0)
    app = opened_as_linked("head", embed="card:kernel", **asked)
    assert set() == cards(app)  # it is late, and says already what it will be
    for run in ("", ", run "):
        (line,) = identities(app)
        assert f"demo-gpt2, L1H3, n = 255, corpus sample, 500 windows of 512 tokens{run}" in line
        assert ("", "kernel", asked) == (*link_of(app)[2:5:2], asked_of(app))
        assert [] == sentences(app)  # of what the page does not draw, nothing is said
        when_computed(app, empty)
    assert {"kernel"} == cards(app)


@pytest.fixture
def empty(shipped_engine, monkeypatch):
    """An engine that has put nothing together yet."""
    monkeypatch.setattr(results, "engine", lambda: shipped_engine)
    return shipped_engine


def when_computed(app: AppTest, engine: Engine) -> None:
    for job in engine.open_jobs():
        job.wait(PATIENCE)
    app.run()


def vanishing() -> None:
    """A page whose slider is drawn only until the card is computed."""
    import streamlit as st

    from pages.shared.cards import embed
    from pages.shared.choices.choices import open_choices, open_page, write_address
    from pages.shared.choices.fit import fitted_number

    open_choices("page")
    open_page()
    embed.begin_embed()
    runs = st.session_state["runs"] = st.session_state.get("runs", 0) + 1
    if runs == 1:
        st.slider("x", **fitted_number("x", (0, 9), 0))
    st.slider("y", **fitted_number("y", (0, 9), 0))
    st.markdown(embed.whole_page("a"))
    write_address(alone=embed.embedded())


def test_the_link_keeps_what_was_drawn_while_the_card_was_computed():
    app = AppTest.from_function(vanishing)
    app.query_params |= {"embed": "card:a", "x": "5", "y": "6", "z": "7"}
    for _ in range(3):
        app.run()
        assert {"x": ["5"], "y": ["6"], "z": ["7"]} == asked_of(app)
    bound(app)["y"].set_value(0).run()
    assert {"x": ["5"], "z": ["7"]} == asked_of(app)


def test_a_link_of_a_question():
    assert {"kernel"} == cards(opened("", show="kernel", embed="card:kernel"))


def test_a_wrong_value_is_told():
    app = opened("head", embed="card:kernel", head="L9H9")
    (told,) = sentences(app)
    assert told.startswith("The link asks for head L9H9")
    assert {"kernel"} == cards(app)


@pytest.mark.parametrize("asked", ["card:nothing", "card:", "kernel", "CARD:kernel"])
def test_no_such_card(asked):
    """Those of the page are named, and so are those that wait for a button."""
    app = opened("helix", embed=asked)
    (said,) = sentences(app)
    expected = "Expected embed=card:NAME with a card of this page (helix, morph, variance, angles, "
    assert f"{expected}shape), got '{asked}'." == said
    assert set() == cards(app)
    assert ["demo-gpt2"] == asked_of(app)["model"]
    if asked == "card:nothing":
        (said,) = sentences(opened("head", embed=asked))
        assert "examples)" in said


def test_a_page_that_lends_a_model_tells_too():
    """It shows another model than the first; the notice of that does not stand in for a card."""
    said, _ = sentences(opened_as_linked("helix", embed="card:x"))
    assert said.endswith("got 'card:x'.")
    assert "demo-gpt2" in identities(opened_as_linked("helix", embed="card:helix"))[0]


def test_a_model_without_what_a_page_needs_says_so():
    app = opened_as_linked("rotary_spectrum", model="demo-gpt2", embed="card:clocks")
    (said,) = sentences(app)
    assert "so its heads have no wavelengths" in said


def test_the_reader_computes_a_card(near_worker, empty):
    """Of all buttons of the page, that of the card alone is seen; pressed, the card replaces it."""
    app = opened("head", embed="card:examples", windows="50", context="64", query="47")
    assert set() == cards(app)
    assert "Not computed yet: example texts of all heads." in words(app)
    (frame,) = (each for each in walk(app) if key_of(each) == "waiting")
    seen = [each.key for each in walk(frame) if isinstance(each, Button)]
    assert ["compute-examples"] == [each for each in seen if each.startswith("compute-")]
    assert {"compute-examples", "compute-denominators"} < {each.key for each in app.button}
    app.button(key="compute-examples").click().run()
    when_computed(app, empty)
    assert {"examples"} == cards(app)


def test_a_folded_card_is_there(computed):
    app = opened("etc_heatmap", embed="card:texts-map", windows="50", context="64", query="47")
    assert "compute-how-many" in [each.key for each in app.button]
    assert [] == sentences(app)


def test_a_folded_card_says_why_it_is_not_there(shipped):
    """Sums that come with the project are not kept by groups of texts."""
    app = opened("etc_heatmap", embed="card:texts-map")
    (frame,) = (each for each in walk(app) if key_of(each) == "waiting")
    assert NOT_BY_GROUPS in [getattr(each, "value", "") for each in walk(frame)]


class Frame(HTMLParser):
    """Reads the attributes of the only element."""

    found: dict[str, str | None]

    def handle_starttag(self, tag, attrs):
        assert "iframe" == tag
        self.found = dict(attrs)


def test_the_code_of_a_frame_escapes():
    for text in ("plain", "a \"b\" <c> & 'd'", '"><script>alert(1)</script>'):
        code = frame_code(f"http://a.org/?text={text}&embed=card:kernel", text, 650)
        frame = Frame()
        frame.feed(code)
        assert {
            "src": f"http://a.org/?text={text}&embed=card:kernel", "title": text,
            "width": "100%", "height": "650", "loading": "lazy",
        }.items() <= frame.found.items()  # fmt: skip
        assert 1 == code.count("<iframe")
        assert "<script" not in code
