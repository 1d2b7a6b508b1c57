"""What a visitor does on a page, for the tests in a browser."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, expect
from playwright.sync_api import TimeoutError as TooSlow

PATIENCE = 60_000  # milliseconds; the machine may be busy with other work
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
QUERY, SKIP = "Query position n (tokens)", "Skip first keys (tokens)"

expect.set_options(timeout=PATIENCE)


def visit(page: Page, address: str) -> None:
    """Open an address and wait until the page is drawn, without progress bars left."""
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    settle(page)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


def settle(page: Page) -> None:
    """Wait until the script has run and nothing is being computed."""
    with suppress(TooSlow):  # a rerun that was asked for just now begins within that time
        page.wait_for_selector(f":not({SETTLED})[data-testid=stApp]", timeout=300)
    bars = page.get_by_role("progressbar", name="progress")
    expect(bars).to_have_count(0)
    page.wait_for_selector(SETTLED)
    while bars.count():  # one that the page drew only now, or the next of several computations
        expect(bars).to_have_count(0)
        page.wait_for_selector(SETTLED)


def cell(page: Page, name: str) -> Locator:
    """One cell of the grid."""
    return page.locator(f"[role=gridcell][data-name={name}]")


def slider(page: Page, name: str) -> Locator:
    """The handle of a slider."""
    return page.get_by_role("slider", name=name)


def values(page: Page) -> dict[str, str | None]:
    """What the sidebar says: model, head, query position and skip."""
    shown = {
        name: page.get_by_role("combobox", name=name, exact=True).input_value()
        for name in ("Model", "Corpus", "Head")
    }
    return shown | {
        name: slider(page, long).get_attribute("aria-valuetext")
        for name, long in (("query", QUERY), ("skip", SKIP))
    }


def choose(page: Page, label: str, option: str) -> None:
    """Choose in a select box; again if its list closed because the sidebar scrolled to the box."""
    box = page.get_by_role("combobox", name=label, exact=True)
    box.scroll_into_view_if_needed()
    for patience in (3_000, 3_000, PATIENCE):
        settle(page)
        box.click()
        with suppress(TooSlow):
            page.get_by_role("option", name=option, exact=True).click(timeout=patience)
            return
    raise TooSlow(f"{label} offers no {option!r}")


def title_of(page: Page, card: str) -> Locator:
    """The title of a figure's card."""
    return page.locator(f".st-key-card-{card} h3")


@contextmanager
def tool(page: Page, card: str, name: str) -> Iterator[Locator]:
    """Open one of the small buttons of a card's head; give its inside, and close it."""
    page.locator(f".st-key-head-{card}").get_by_role("button", name=name, exact=True).click()
    body = page.get_by_test_id("stPopoverBody")
    expect(body).to_be_visible()
    yield body
    page.keyboard.press("Escape")
    expect(body).to_have_count(0)


def csv_rows(file: bytes) -> list[dict[str, str]]:
    """The rows of a downloaded table, without the commented lines above it."""
    lines = [line for line in file.decode().splitlines() if not line.startswith("# ")]
    return list(csv.DictReader(lines))


def no_trouble(page: Page) -> None:
    """Nothing on the page complains: no error box, no traceback."""
    expect(page.get_by_test_id("stException")).to_have_count(0)
    expect(page.get_by_test_id("stAlert").filter(has_text="error")).to_have_count(0)
    expect(page.get_by_text("Traceback")).to_have_count(0)


HASH = """name => {
  const plot = document.querySelector(`.st-key-figure-${name} .js-plotly-plot`);
  if (!plot?.data) return "";
  const plain = (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
  let sum = 0;
  for (const each of JSON.stringify([plot.data, plot.layout.title], plain))
    sum = (31 * sum + each.charCodeAt(0)) | 0;
  return `${sum}`;
}"""
TRACES = """name => document.querySelector(`.st-key-figure-${name} .js-plotly-plot`)._fullData.map(
  trace => [trace.name, (trace.x ?? []).length])"""


COLOUR = """([figure, name]) => {
  const plot = document.querySelector(`.st-key-figure-${figure} .js-plotly-plot`);
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = plot._fullData.find(trace => trace.name === name).line.color;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}"""


@contextmanager
def redraws(page: Page, figure: str) -> Iterator[None]:
    """What is done within changes the data of a figure, sooner or later."""
    before = page.wait_for_function(HASH, arg=figure).json_value()
    yield
    page.wait_for_function(f"([name, before]) => ![before, ''].includes(({HASH})(name))",
                           arg=[figure, before])  # fmt: skip
    settle(page)


def traces(page: Page, figure: str) -> dict[str, int]:
    """The name of every trace of a figure, and the number of its points."""
    page.wait_for_function(HASH, arg=figure)
    return dict(page.evaluate(TRACES, figure))


def line_colour(page: Page, figure: str, trace: str) -> str:
    """The colour of a line of a figure, as the browser writes it."""
    return page.evaluate(COLOUR, [figure, trace])


def table(page: Page, key: str) -> Locator:
    """A table as a screen reader has it: canvas has no text; only cells in view are in it."""
    frame = page.locator(f".st-key-{key}")
    frame.scroll_into_view_if_needed()
    expect(frame.locator("tbody td").first).to_be_attached()
    return frame.locator("table").first


def parameter(page: Page, name: str) -> str | None:
    """What the address says of one parameter."""
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
    """Turn a switch of the page, not of the sidebar, on or off, and wait for what follows.

    Again if a run of the script that was under way put it back.
    """
    switch = page.get_by_test_id("stMain").get_by_role("switch", name=name)
    for _ in range(3):
        switch.set_checked(on, force=True)
        settle(page)
        if switch.is_checked() == on:
            return
    raise TooSlow(f"{name} stays as it is")


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


def seek(page: Page, label: str, option: str) -> None:
    """Choose in a select box by typing, again if its list closed because the page moved.

    A long list holds only the options near the chosen one until something is typed.
    """
    box = page.get_by_role("combobox", name=label, exact=True)
    found = page.get_by_role("option", name=option, exact=True)
    for patience in (3_000, PATIENCE):
        box.scroll_into_view_if_needed()
        box.fill("")
        box.fill(option)
        with suppress(TooSlow):
            found.click(timeout=patience)
            return
    raise TooSlow(f"{label} offers no {option!r}")
