"""What a visitor does on a page, for the tests in a browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, expect
from playwright.sync_api import TimeoutError as TooSlow

PATIENCE = 180_000  # milliseconds; the machine may be busy with other work
LATER = 1_100  # milliseconds after which a choice is a new entry of the browser's history
QUIET = """() => {
  const all = name => [...document.querySelectorAll(`[data-testid=${name}]`)];
  if (all("stApp")[0]?.dataset.testScriptState !== "notRunning") return false;
  if (all("stProgress").length || all("stSkeleton").length) return false;
  const part = place => place.shadowRoot?.querySelector("div > div > :not(style)");
  const shown = place => place.offsetParent; // some parts only talk to the browser
  if (!all("stBidiComponentIsolated").filter(shown).every(part)) return false;
  if ([...document.querySelectorAll(".figure[data-due]")].some(shown)) return false;
  const { did, asked, began, ended, drew } = window.visitor, now = performance.now();
  return now - drew > 100 && ended > began && began > asked && (asked > did || now - did > 400);
}"""
"""No run of the script is under way or still to come, and what it drew is there; see `watch.js`.

Some widgets wait up to 200 ms for more of the same before they ask for a run.
"""
WHEN_IDLE = """() => new Promise(done => {
  const look = () => requestIdleCallback(() => done((SCRIPT)()), { timeout: 1000 });
  requestAnimationFrame(look);
  setTimeout(look, 1000); // where no frames are drawn
})"""
"""React draws a page in pieces, and between two of them nothing seems to happen.

What asks for a run where it comes into view hears of that once a frame has been drawn.
"""
IS_DARK = """getComputedStyle(document.querySelector("[data-testid=stApp]")).backgroundColor
  .match(/\\d+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0) < 384"""
PLACES = """async () => {
  for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
  return [...document.querySelectorAll("[data-testid=stMain] *")].flatMap(node => {
    const box = node.getBoundingClientRect();
    return [box.x, box.y, box.width, box.height];
  }).reduce((sum, each) => 31 * sum % 1e9 + each, 0);
}"""
"""Once a frame has been drawn: by then, what follows a change of width has heard of it."""
QUERY, SKIP = "Query position n (tokens)", "Skip first keys (tokens)"

expect.set_options(timeout=PATIENCE)


def visit(page: Page, address: str) -> None:
    """Open an address and wait until the page is drawn."""
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    settle(page)


def settle(page: Page) -> None:
    """Wait until the script has run, nothing is being computed, and all of it is drawn."""
    until(page, WHEN_IDLE.replace("SCRIPT", QUIET))


def still(page: Page) -> None:
    """Wait until nothing moves any more: figures fit themselves to their columns by and by."""
    before = None
    while before != (now := page.evaluate(PLACES)):
        before = now
        page.wait_for_timeout(300)


def in_both_themes(page: Page) -> Iterator[str]:
    """Yield ``light``, then ``dark`` once the page has followed the reader's machine."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        until(page, IS_DARK + f" === {str(theme == 'dark').lower()}")
        settle(page)
        yield theme


def cell(page: Page, name: str) -> Locator:
    """One cell of a grid of the page itself."""
    cells = page.get_by_test_id("stMain").locator(f"[role=gridcell][data-name={name}]")
    return cells.filter(visible=True)


def cells(page: Page) -> Locator:
    """All cells of the grids of the page itself."""
    return page.get_by_test_id("stMain").get_by_role("gridcell")


def side_cell(page: Page, name: str) -> Locator:
    """One cell of the small grid beside the page."""
    return page.get_by_test_id("stSidebar").locator(f"[role=gridcell][data-name={name}]")


def head_shown(page: Page) -> Locator:
    """The name above the curve that the browser draws: head and query position."""
    return page.locator(".curve .name").first


def slider(page: Page, name: str) -> Locator:
    """The handle of a slider."""
    return page.get_by_role("slider", name=name)


def values(page: Page) -> dict[str, str | None]:
    """What is chosen: model, corpus, head, query position and skip; the run is unfolded.

    The head is that of the first grid: the sidebar's, on the Map its own.
    """
    unfold_run(page)
    side = page.get_by_test_id("stSidebar")
    chosen = page.locator("[role=gridcell][aria-selected=true]").first
    return {
        "Model": field(side, "model").locator("input").input_value(),
        "Corpus": field(side, "corpus").locator("input").input_value(),
        "Head": chosen.get_attribute("data-name"),
        "query": side.locator(".position input").get_attribute("aria-valuetext"),
        "skip": field(side, "skip").get_by_role("slider").get_attribute("aria-valuetext"),
    }


def field(place: Page | Locator, key: str) -> Locator:
    """The widget of a choice, however often the server has set it."""
    return place.locator(f".st-key-{key}, [class*='st-key-{key}-']").first


def unfold_run(page: Page) -> None:
    """Open the settings of the run in the sidebar."""
    fold = page.locator(".st-key-run details")
    if fold.get_attribute("open") is None:
        fold.locator("summary").click()
    expect(field(page, "corpus").locator("input")).to_be_visible()


def go(page: Page, title: str) -> None:
    """Open a page from the bar above, by the lists of its sections."""
    links = page.get_by_test_id("stTopNavDropdownLink")
    for section in page.get_by_test_id("stTopNavSection").all():
        section.click()
        expect(links.first).to_be_visible()
        link = links.filter(has_text=re.compile(f"^{title}$"))
        if link.count():
            link.click()
            break
        page.keyboard.press("Escape")
        expect(links).to_have_count(0)
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    settle(page)


def to_end(page: Page) -> None:
    """Scroll down, so that what waits below is asked for."""
    page.get_by_test_id("stMain").evaluate("main => main.scrollTo(0, main.scrollHeight)")


def choose(page: Page, label: str, option: str) -> None:
    """Choose in a select box by mouse, on a page that is still."""
    box = page.get_by_role("combobox", name=label, exact=True)
    settle(page)
    box.scroll_into_view_if_needed()
    box.click()
    if box.is_editable():  # a long list shows what is in view alone
        box.fill(option)
    page.get_by_role("option", name=option, exact=True).click()


def title_of(page: Page, card: str) -> Locator:
    """The title of a figure's card."""
    return page.locator(f".st-key-card-{card} h3")


def finding_of(page: Page, card: str) -> Locator:
    """The sentence below the title of a figure's card."""
    return page.locator(f".st-key-card-{card} .finding")


def menu_of(page: Page, card: str) -> Locator:
    """The button that opens a card's menu."""
    head = page.locator(f".st-key-card-{card}")
    return head.get_by_role("button", name="About this figure", exact=True)


@contextmanager
def tool(page: Page, card: str, name: str) -> Iterator[Locator]:
    """Open a card's menu at one of its tabs; give its inside, and close it."""
    menu_of(page, card).click()
    body = page.locator(f".st-key-menu-{card}")
    body.get_by_role("tab", name=name, exact=True).click()
    settle(page)
    yield body.get_by_role("tabpanel", name=name)
    page.keyboard.press("Escape")
    expect(body).to_have_count(0)


def no_trouble(page: Page) -> None:
    """Nothing on the page complains: no error box, no traceback."""
    expect(page.get_by_test_id("stException")).to_have_text([])  # it tells which
    expect(page.get_by_test_id("stAlert").filter(has_text="error")).to_have_count(0)
    expect(page.get_by_text("Traceback")).to_have_count(0)


CURVE = """() => [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")]
  .map(each => each.shadowRoot?.querySelector(".curve")).filter(Boolean)
  .map(curve => [curve.querySelector(".name").textContent,
    [...curve.querySelectorAll(".point.kernel, .line.kernel")].map(
      node => node.getAttribute("cy") ?? node.getAttribute("points")).join()])[0]"""


def curve(page: Page) -> list[str]:
    """What stands above the first curve that the browser draws, and its line and points."""
    return page.evaluate(CURVE)


HASH = """name => {
  const plot = document.querySelector(`.st-key-figure-${name} .js-plotly-plot`);
  if (!plot?.data) return "";
  const known = (window.hashes ??= new WeakMap()), title = JSON.stringify(plot.layout.title);
  const kept = known.get(plot.data);
  if (kept && kept.title === title) return kept.hash;
  const plain = (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
  let sum = 0;
  for (const each of JSON.stringify([plot.data, plot.layout.title], plain))
    sum = (31 * sum + each.charCodeAt(0)) | 0;
  known.set(plot.data, { title, hash: `${sum}` });
  return `${sum}`;
}"""
TRACES = """name => document.querySelector(`.st-key-figure-${name} .js-plotly-plot`)._fullData.map(
  trace => [trace.name, (trace.x ?? []).length])"""


UNTIL = """async ([arg, patience]) => {
  for (const end = performance.now() + patience; ; ) {
    const given = (SCRIPT);
    const found = await (typeof given === "function" ? given(arg) : given);
    if (found || performance.now() > end) return found;
    await new Promise(next => setTimeout(next, 20));
  }
}"""


def until(page: Page, script: str, arg: Any = None) -> Any:
    """Wait until a function of the page gives anything true, and return that.

    The pages' policy forbids to evaluate text, which playwright's own waiting does in the page.
    """
    found = page.evaluate(UNTIL.replace("SCRIPT", script), [arg, PATIENCE])
    if not found:
        raise TooSlow(f"in {PATIENCE} ms never true: {script}, given {arg!r}")
    return found


def hash_of(page: Page, figure: str) -> str:
    """A number that tells what a figure shows from all else, once it is drawn."""
    return until(page, HASH, figure)


@contextmanager
def redraws(page: Page, figure: str) -> Iterator[None]:
    """What is done within changes the data of a figure, sooner or later."""
    before = hash_of(page, figure)
    yield
    until(page, f"([name, before]) => ![before, ''].includes(({HASH})(name))", [figure, before])
    settle(page)


def traces(page: Page, figure: str) -> dict[str, int]:
    """The name of every trace of a figure, and the number of its points."""
    hash_of(page, figure)
    return dict(page.evaluate(TRACES, figure))


def table(page: Page, key: str) -> Locator:
    """A table as a screen reader has it: canvas has no text; only cells in view are in it."""
    frame = page.locator(f".st-key-{key}")
    frame.scroll_into_view_if_needed()
    expect(frame.locator("tbody td").first).to_be_attached()
    return frame.locator("table").first


def parameter(page: Page, name: str) -> str | None:
    """What the address says of one parameter, once the page is settled."""
    settle(page)
    return parse_qs(urlsplit(page.url).query).get(name, [None])[0]


def press(page: Page, label: str, key: str) -> None:
    """Press a key on a slider's handle, and wait for what follows."""
    slider(page, label).press(key)
    settle(page)


def pick(page: Page, option: str) -> None:
    """Choose in a segmented control."""
    page.get_by_role("radio", name=option, exact=True).check(force=True)
    settle(page)


def flip(page: Page, name: str, on: bool) -> None:
    """Turn a switch of the page, not of the sidebar, on or off, and wait for what follows."""
    switch = page.get_by_test_id("stMain").get_by_role("switch", name=name)
    switch.set_checked(on, force=True)
    settle(page)
    expect(switch).to_be_checked(checked=on)


def shown(page: Page, *names: str) -> dict[str, str]:
    """What the page's own fields for numbers, boxes to choose from and sliders hold."""
    main, found = page.get_by_test_id("stMain"), {}
    for name in names:
        field = main.get_by_role("spinbutton", name=name, exact=True).or_(
            main.get_by_role("combobox", name=name, exact=True)
        )
        handle = main.get_by_role("slider", name=name)
        expect(field.or_(handle)).to_be_visible()
        found[name] = handle.get_attribute("aria-valuetext") if handle.count() else (
            field.input_value()
        )  # fmt: skip
    return found


def console(page: Page) -> list[str]:
    """A list that grows with what the browser's console complains of.

    Streamlit asks for its own files below a page's address first, and gets a 404: not our doing.
    """
    trouble: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if said.type == "error" and "_stcore/" not in said.location["url"]:
            trouble.append(said.text)

    page.on("console", note)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    return trouble


def write(page: Page, label: str, text: str) -> None:
    """Type into a field for text or a number, and send it."""
    box = page.get_by_role("textbox", name=label, exact=True).or_(
        page.get_by_role("spinbutton", name=label, exact=True)
    )
    box.fill(text)
    box.press("Control+Enter")
    settle(page)


def complains(page: Page, sentence: str) -> None:
    """One error box says so in one sentence; no word of Python."""
    box = page.get_by_test_id("stAlertContentError")
    expect(box).to_contain_text(sentence)
    expect(box).to_have_count(1)
    expect(page.get_by_text("Traceback")).to_have_count(0)
