"""The scripts of figures and of the instrument, called as Streamlit calls them, without a server.

Of two calls in short succession Streamlit may end the first after the second has begun.
"""

import json
import struct
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from pages.instrument.parts import SCRIPT
from tests.support.visit import PATIENCE, until

pytestmark = pytest.mark.browser

ROOT = "http://127.0.0.1:1/"
FIGURE = Path("pages/shared/cards/figure.js").read_text("utf-8")
HTML = """<div id="part"><div class="room"></div><div class="head-grid"></div></div>
<div id="other"></div><div id="third"><div class="position"></div></div>
<script type="module">
  import part from "./part.js"
  window.sent = []
  const setStateValue = (_, value) => sent.push(value)
  window.call = (data, at = document.getElementById("part")) =>
    part({ data, parentElement: at, setStateValue })
</script>"""
IDLE = """() => new Promise(done =>
  requestIdleCallback(() => requestAnimationFrame(() => requestIdleCallback(done))))"""
"""All that was due has been done."""
PLOTLY = """window.drawn = []
window.sized = []
window.Plotly = {
  Icons: {}, Plots: { resize: (place) => sized.push(place.clientWidth) },
  purge: (place) => { place.textContent = ""; delete place.data },
  react: async (place, { data }) => {
    drawn.push(data)
    if (drawn.length <= (window.fails ?? 0)) throw new Error("no room")
    place.on = () => {}
    if (!place.data) place.innerHTML = "<p>drawn</p>" // as Plotly, which changes what it drew
    place.data = { data }
    await window.drawing
  },
}"""


@pytest.fixture
def load(page: Page):
    """Open a page with one place and a script; what else it asks for is answered so."""

    def loaded(script: str, numbers: bytes = b"") -> list[str]:
        asked: list[str] = []

        def answer(route: Route) -> None:
            name = route.request.url.removeprefix(ROOT)
            if name.startswith("numbers/"):
                asked.append(name.removeprefix("numbers/"))
                route.fulfill(body=numbers)
                return
            body = {"": HTML, "part.js": script, "plotly.js": PLOTLY}[name]
            kind = "text/javascript" if name else "text/html"
            route.fulfill(body=body, content_type=kind)

        page.route(f"{ROOT}**", answer)
        page.goto(ROOT)
        until(page, "() => Boolean(window.call)")
        return asked

    return loaded


def figure(spec: int) -> str:
    about = {"library": "plotly.js", "config": {}}
    shown = {"spec": json.dumps({"data": spec, "layout": {}}), "height": "50px", "title": "x"}
    return json.dumps(about | shown | {"linked": False})


def test_a_figure_of_two_calls_is_drawn(page: Page, load):
    load(FIGURE)
    page.evaluate(f"() => {{ const end = call({figure(1)}); call({figure(2)}); end() }}")
    expect(page.locator(".figure")).to_have_text("drawn")
    assert [2] == page.evaluate("drawn")
    expect(page.locator(".figure")).not_to_have_attribute("data-due", "")


@pytest.mark.parametrize("held", ["script", "drawing"])
def test_a_figure_is_replaced_before_it_is_drawn(page: Page, load, held):
    """The latest of two is drawn once what they wait for is there, and stays."""
    load(FIGURE)
    if held == "script":
        routes: list[Route] = []
        page.route("**/plotly.js", lambda route: routes.append(route))
    else:
        page.evaluate("() => { window.drawing = new Promise(done => (window.go = done)) }")
    page.evaluate(f"call({figure(1)})")
    if held == "drawing":
        until(page, "() => window.drawn?.length === 1")
    end = time.monotonic() + PATIENCE / 1000
    while held == "script" and not routes and time.monotonic() < end:
        page.wait_for_timeout(10)  # until its script is asked for
    page.evaluate(IDLE)
    page.evaluate(f"call({figure(2)})")
    page.evaluate(IDLE)
    if held == "script":
        routes[0].fulfill(body=PLOTLY, content_type="text/javascript")
    else:
        page.evaluate("go()")
    expect(page.locator(".figure")).not_to_have_attribute("data-due", "")
    page.evaluate(IDLE)
    expect(page.locator(".figure")).to_have_text("drawn")
    assert ([2] if held == "script" else [1, 2]) == page.evaluate("drawn")


def test_a_figure_that_goes_from_the_page_is_not_fitted(page: Page, load):
    """Its page is left between a change of its width and the next frame: Plotly would refuse."""
    load(FIGURE)
    page.evaluate(f"call({figure(1)})")
    expect(page.locator(".figure")).to_have_text("drawn")
    page.evaluate("document.body.style.width = '333px'")
    until(page, "sized.at(-1) === 333")
    page.evaluate("""() => {
      const leave = ([{ target }]) => target.clientWidth === 222 && (target.style.display = "none");
      new ResizeObserver(leave).observe(document.querySelector(".figure"));
      document.body.style.width = "222px";
    }""")
    page.evaluate(IDLE)
    page.evaluate(IDLE)
    assert 333 == page.evaluate("sized.at(-1)")


@pytest.mark.parametrize("fails", [1, 2])
def test_a_figure_that_fails_is_tried_once_more_and_says_so(page: Page, load, fails):
    """Out of sight, it waits until one scrolls there."""
    load(FIGURE)
    place = page.locator(".figure")
    page.evaluate(f"window.fails = {fails}")
    page.evaluate("document.body.style.paddingTop = '3000px'")
    page.evaluate(f"call({figure(1)})")
    said = "This figure could not be drawn (no room): reload the page."
    expect(place).to_have_text(said)
    page.evaluate(IDLE)
    assert [1] == page.evaluate("drawn")

    place.scroll_into_view_if_needed()
    until(page, "drawn.length === 2")
    expect(place).to_have_text("drawn" if fails == 1 else said)
    page.evaluate(IDLE)
    assert [1, 1] == page.evaluate("drawn")
    page.evaluate(f"call({figure(1)})")  # the next run of the script
    expect(place).to_have_text("drawn")


def test_a_head_is_text_and_leads_to_its_anchor(page: Page, load):
    """Names of models, tokens and typed texts are other people's; it is drawn without a figure."""
    hostile = "<img src=x onerror='window.hit = 1'> **a** [b](c) $d$"
    load(FIGURE)
    page.evaluate("location.hash = 'card'")
    head = json.dumps({"head": {"name": "card", "title": hostile, "finding": f"Of {hostile}"}})
    for _ in range(2):
        page.evaluate(f"call({head})")
    expect(page.locator("h3#card")).to_have_text(hostile)
    expect(page.locator(".finding")).to_have_text(f"Of {hostile}")
    assert not page.locator("#part img, #part a, .figure").count()
    assert page.evaluate("window.hit === undefined")


def state(query: int, run: str = "a", cell: str = "L0H0", rev: int = 0) -> str:
    blocks = {n: f"{run}{n}" for n in range(100, 1100, 100)}
    told = {"run": run, "rev": rev, "cell": cell, "query": query, "log": [], "pinned": []}
    return json.dumps({"part": "state", "blocks": blocks, "profile": None} | told)


def grid(mark: str) -> str:
    cells = [
        {"name": f"L0H{head}", "label": "", "colour": "", "ink": "", "mark": mark}
        | {"missing": False, "dimmed": False}
        for head in range(2)
    ]
    more = {"legend": [], "glyphs": [], "headers": ["0", "1"], "corner": "", "small": True}
    return json.dumps({"part": "grid", "rows": [cells], "shared": True, "kernels": False} | more)


def test_a_grid_of_two_calls_follows(page: Page, load):
    load(SCRIPT)
    page.evaluate(f"() => {{ const end = call({grid('a')}); call({grid('b')}); end() }}")
    page.evaluate(f"call({state(100)}, document.getElementById('other'))")
    expect(page.locator("[data-name=L0H0]")).to_have_attribute("aria-selected", "true")


@pytest.fixture
def follow(page: Page, load):
    """Draw a grid, and tell it what the server has chosen; return which head is selected then."""
    load(SCRIPT)
    page.evaluate(f"call({grid('')})")

    def told(*state_of: object) -> str | None:
        page.evaluate(f"call({state(*state_of)}, document.getElementById('other'))")
        page.evaluate(IDLE)
        return page.locator("[aria-selected=true]").get_attribute("data-name")

    return told


def click(page: Page, *heads: str) -> None:
    page.evaluate("all => all.forEach(n => document.querySelector(`[data-name=${n}]`).click())",
                  [*heads])  # fmt: skip


def test_of_quick_choices_the_last_is_sent_once(page: Page, follow):
    follow(100)
    click(page, "L0H1", "L0H0", "L0H1")
    until(page, "sent.length")
    page.evaluate("new Promise(done => setTimeout(done, 300))")  # twice as long as a choice rests
    assert [("L0H1", 3)] == [(each["cell"], each["rev"]) for each in page.evaluate("sent")]


def test_a_head_and_a_position_chosen_together_are_both_sent(page: Page, follow):
    follow(100)
    position = json.dumps({"part": "position", "queries": [100, 300, 700]})
    page.evaluate(f"call({position}, document.getElementById('third'))")
    click(page, "L0H1")
    page.locator("input").fill("2")
    until(page, "sent.at(-1)?.query")
    sent = page.evaluate("sent.at(-1)")
    assert ("L0H1", 700, 2) == (sent["cell"], sent["query"], sent["rev"])


def test_a_choice_stands_until_the_server_has_followed_it(page: Page, follow):
    """Late words of the server change nothing; another run brings its position, not its head."""
    follow(100)
    click(page, "L0H0", "L0H1")
    assert "L0H1" == follow(300, "a", "L0H0", 1)
    with page.expect_request("**/numbers/b*") as first:
        assert "L0H1" == follow(200, "b", "L0H0", 1)
    assert first.value.url.endswith("b200")
    click(page, "L0H0", "L0H1")
    until(page, "sent.at(-1)?.rev === 4")
    assert "L0H1" == follow(200, "b", "L0H1", 4)
    assert "L0H0" == follow(200, "b", "L0H0", 4)


def test_figures_are_faint_until_they_show_the_choice(page: Page, follow):
    """And what is pointed at is forgotten on another page."""
    behind, pointed = page.locator("html[data-behind]"), page.locator("html[data-seen]")

    def drawn(cell: str, query: int, name: str = "helix") -> None:
        end = {"part": "told", "cell": cell, "query": query, "page": name, "section": "Positions"}
        page.evaluate(f"call({json.dumps(end | {'blocks': {}, 'profile': None})})")

    follow(100)
    drawn("L0H0", 100)
    expect(behind).to_have_count(0)
    click(page, "L0H1")
    expect(behind).to_have_count(1)
    drawn("L0H1", 100)
    expect(behind).to_have_count(0)
    follow(200, "a", "L0H1", 1)
    expect(behind).to_have_count(1)
    drawn("L0H1", 200)
    expect(behind).to_have_count(0)
    page.locator("[data-name=L0H0]").hover()
    expect(pointed).to_have_count(1)
    drawn("L0H1", 200)
    follow(200, "a", "L0H1", 2)
    expect(pointed).to_have_count(1)
    drawn("L0H1", 200, "kernel")
    expect(pointed).to_have_count(0)


def test_positions_near_every_choice_are_fetched_ahead(page: Page, load):
    """Of blocks of 1.5 MB, three after each choice, and the choice itself; so in another run."""
    header = json.dumps({"shape": [1, 2], "offsets": [0, 1], "names": ["kernel"]}).encode()
    header += b" " * (len(header) % 2)
    asked = load(SCRIPT, struct.pack("<I", len(header)) + header + bytes(1_500_000))
    for query, run, nearest in (
        (100, "a", ["a100", "a200", "a300", "a400"]),
        (900, "a", ["a900", "a800", "a1000", "a700"]),
        (900, "b", ["b900", "b800", "b1000", "b700"]),
    ):
        asked.clear()
        with page.expect_response(f"**/{nearest[-1]}"):
            page.evaluate(f"call({state(query, run)})")
        assert nearest == asked
