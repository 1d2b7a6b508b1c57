"""Random quick choices in several tabs: do title, controls and address say what the last ones say?

In each sequence some choices are made on a page, with pauses of 0 to 0.4 s: heads and positions in
the sidebar, models, and whatever the page itself has to choose from. Once the page is still, and
the server has heard all, every choice must be shown and be in the address. A third of the sequences
makes one choice and goes Back: all is as before. Another third loads the address again: all is as
it was. A third may be made while a pass is in progress.
"""

import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from playwright.async_api import Error, Locator, Page, WebSocketRoute, async_playwright
from playwright.async_api import TimeoutError as TooSlow
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from pages import FIRST, NAMES
from tests.support.browser import find_browser

HEADS = [f"L{layer}H{head}" for layer in (0, 1) for head in range(1, 7)]
MODELS = ("demo-gpt2", "demo-attn-2l")
WRITERS = ("preset", "pair", "mode", "part", "change")
"""Controls that draw other controls, or write into them."""
KINDS = ("quick", "back", "again")
"""What is done in turn after a page was opened."""
PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
QUIET, PATIENCE = 0.8, 60.0  # seconds
BRIEF = 2_000  # milliseconds
LATER = 1.1  # seconds after which a choice is a new entry of the history

STATE = r"""() => {
  const named = (node) => {
    const holder = node.closest("[class*=st-key-]");
    return /(?:^|\s)st-key-([a-z0-9]+)(?:-\d+)?(?=\s|$)/.exec(holder?.className ?? "")?.[1];
  };
  const held = {
    stSlider: (node) => [...node.querySelectorAll("[role=slider], input[type=range]")].map(
      (each) => each.getAttribute("aria-valuetext") ?? each.getAttribute("aria-valuenow")).join(),
    stNumberInput: (node) => node.querySelector("input").value,
    stSelectbox: (node) => node.querySelector("input").value,
    stCheckbox: (node) => String(node.querySelector("input").checked),
    stButtonGroup: (node) => [...node.querySelectorAll("button")].filter(
      (each) => each.ariaChecked === "true" || each.ariaPressed === "true").map(
      (each) => each.textContent).join(),
    stMultiSelect: (node) => [...node.querySelectorAll("[data-tag], [data-baseweb=tag]")].map(
      (each) => each.textContent).join(),
    stTextInput: (node) => node.querySelector("input").value,
    stTextArea: (node) => node.querySelector("textarea").value,
  };
  const controls = {};
  for (const [kind, value] of Object.entries(held))
    for (const node of document.querySelectorAll(`[data-testid=${kind}]`)) {
      const key = named(node);
      if (key) controls[key] = value(node);
    }
  const said = /· (L\d+H\d+) of ([\w.-]+) ·/.exec(document.title);
  const words = document.querySelector(".st-key-above summary")?.textContent;
  const address = Object.fromEntries(
    [...new URLSearchParams(location.search).keys()].map(
      (key) => [key, new URLSearchParams(location.search).getAll(key).join()]));
  const query = /n = (\d+)/.exec(words)?.[1];
  return { model: said?.[2], head: said?.[1], query, controls, address };
}"""
BUSY = """() => [document.title, location.href,
  document.querySelector(".st-key-above summary")?.textContent,
  "behind" in document.documentElement.dataset].join("|")"""
OFFERED = """() => [...document.querySelectorAll(
    "[data-testid=stMain] :is([data-testid=stSlider], [data-testid=stNumberInput], "
    + "[data-testid=stCheckbox], [data-testid=stButtonGroup])")]
  .filter((node) => node.offsetParent && !node.querySelector(":disabled"))
  .map((node) => /(?:^|\\s)(st-key-[a-z0-9]+(?:-\\d+)?)(?=\\s|$)/.exec(
    node.closest("[class*=st-key-]")?.className ?? "")?.[1]).filter(Boolean)"""


STREAM = re.compile(r"/_stcore/stream")
HEARTBEAT = BackMsg(app_heartbeat=True).SerializeToString()
LARGE = 100_000  # bytes of a message that is none of those that are read here


@dataclass
class Line:
    """What a page and its server say to each other.

    A busy server takes long before it hears of a choice, and begins to run. So it is asked: it
    answers a heartbeat after it has heard all that was said before.
    """

    server: WebSocketRoute | None = None
    said: int = 0
    """Words of the page's that ask for a run, but for those of a clock that follows a pass."""
    heard: int = 0
    """So many of these has the server heard."""
    asked: tuple[float, int] | None = None
    """When a heartbeat was sent last, and what had been said before the first without an answer."""
    running: bool = True
    ended: float = 0.0
    """When it had run the whole page last."""

    def connect(self, browser: WebSocketRoute) -> None:
        """Pass on what is said, from a new connection on."""
        server = self.server = browser.connect_to_server()
        self.said, self.heard, self.asked, self.running = 0, 0, None, True

        def up(message: str | bytes) -> None:
            server.send(message)
            if isinstance(message, bytes):
                word = BackMsg.FromString(message)
                asks = word.WhichOneof("type") == "rerun_script"
                self.said += asks and not word.rerun_script.is_auto_rerun

        def down(message: str | bytes) -> None:
            if isinstance(message, bytes) and len(message) < LARGE:
                word = ForwardMsg.FromString(message)
                kind = word.WhichOneof("type")
                if kind == "heartbeat_ack" and self.asked:
                    self.heard, self.asked = self.asked[1], None
                    return
                if kind == "new_session":
                    self.running = True
                elif kind == "script_finished":
                    self.running = word.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN
                    if word.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                        self.ended = time.monotonic()
            browser.send(message)

        browser.on_message(up)
        server.on_message(down)

    def done(self) -> bool:
        """Tell whether the server has heard all, and has been at rest for a while; else ask."""
        now = time.monotonic()
        if self.server and self.heard < self.said and (not self.asked or now > self.asked[0] + 1):
            self.asked = now, self.asked[1] if self.asked else self.said
            self.server.send(HEARTBEAT)  # an answer is dropped where a run begins
        return self.heard == self.said and not self.running and now > self.ended + QUIET


@dataclass
class Tab:
    """A tab and what its reader has chosen since it was still."""

    page: Page
    line: Line
    url: str
    chance: random.Random
    expected: dict[str, str] = field(default_factory=dict)
    done: list[tuple[str, str]] = field(default_factory=list)
    other: bool = False
    """Whether another model was chosen: what it offers besides heads is seen once it is there."""

    async def open(self, name: str, **link: object) -> None:
        path = "" if name == FIRST else name
        await self.page.goto(f"{self.url}/{path}?{urlencode(link)}")
        await self.page.wait_for_selector("[role=gridcell][data-name]")
        await self.settle()

    async def settle(self) -> None:
        """Wait until the server is done, and nothing has changed for a while."""
        end, since, last = time.monotonic() + PATIENCE, time.monotonic(), ""
        while not self.line.done() or time.monotonic() < since + QUIET:
            now = await self.page.evaluate(BUSY)
            if now != last or now.endswith("|true"):
                since, last = time.monotonic(), now
            if time.monotonic() > end:
                raise TooSlow(f"not still after {PATIENCE:g} s: {now}, {self.line}")
            await asyncio.sleep(0.1)

    async def state(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.page.evaluate(STATE)
        return found

    async def head(self) -> None:
        name = self.chance.choice([each for each in HEADS if each != self.expected.get("head")])
        cell = self.page.locator(f"[role=gridcell][data-name={name}]").first
        if not await cell.count():  # the Map waits for its measure, and has no other grid
            return
        await cell.dispatch_event("pointerdown")
        await cell.dispatch_event("click")
        self.note("head", name)

    async def query(self) -> None:
        slider = self.page.locator("[data-testid=stSidebar] .position input[type=range]")
        shown = await slider.evaluate(
            """async (slider, place) => {
              const through = {bubbles: true, composed: true};
              slider.value = Math.min(slider.max, place);
              slider.dispatchEvent(new PointerEvent("pointerdown", through));
              slider.dispatchEvent(new Event("input", through));
              for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
              return slider.closest(".position").querySelector("output").textContent;
            }""",
            self.chance.randint(2, 9),
        )
        self.note("query", shown)

    async def model(self) -> None:
        other = next(each for each in MODELS if each != self.expected.get("model"))
        box = self.page.locator(".st-key-model input, [class*=st-key-model-] input").first
        await box.click()
        await box.fill(other)
        await box.press("Enter")
        self.expected = {"head": self.expected.get("head", ""), "model": other}
        self.other = True
        self.done.append(("model", other))

    async def control(self) -> None:
        """One of the page's own; what is shown at once is what is expected."""
        offered = await self.page.evaluate(OFFERED)
        if not offered:
            return
        holder = self.chance.choice(offered)
        key = holder.removeprefix("st-key-").partition("-")[0]
        try:
            await self.use(self.page.locator(f".{holder}").first)
        except TooSlow:  # it has just gone from the page
            self.expected.pop(key, None)
            return
        await asyncio.sleep(0.03)
        shown = (await self.state())["controls"].get(key)
        if key in WRITERS:
            kept = ("head", "model", "query")
            self.expected = {each: self.expected[each] for each in kept if each in self.expected}
        if shown is None:
            self.expected.pop(key, None)
        else:
            self.note(key, shown)

    async def use(self, place: Locator) -> None:
        """Move a slider by one step, or press a switch or one of the buttons."""
        if await place.get_by_role("slider").count():
            way = self.chance.choice(["ArrowLeft", "ArrowRight"])
            await place.get_by_role("slider").first.press(way, timeout=BRIEF)
            return
        node = place.locator("input").first
        if not await place.get_by_test_id("stCheckbox").count():
            buttons = place.locator("button:not([disabled])")
            if not (count := await buttons.count()):
                return
            node = buttons.nth(self.chance.randrange(count))
        await node.dispatch_event("pointerdown", timeout=BRIEF)
        await node.dispatch_event("click", timeout=BRIEF)

    def note(self, key: str, value: str) -> None:
        if key == "head" or not self.other:
            self.expected[key] = value
        self.done.append((key, value))

    async def lost(self) -> list[str]:
        """What the page, once it is still, does not show as chosen."""
        state = await self.state()
        shown = state["controls"] | {key: state[key] for key in ("model", "head", "query")}
        address = {"model": MODELS[0]} | state["address"]
        wrong = [
            f"{key}: {shown[key]!r} in place of {value!r}"
            for key, value in self.expected.items()
            if key in shown and shown[key] != value
        ]
        for key in ("model", "head", "query"):
            if address.get(key, shown[key]) != shown[key]:
                wrong.append(f"{key}: {shown[key]!r}, in the address {address[key]!r}")
        if await self.page.get_by_test_id("stException").count():
            wrong.append("an exception")
        return wrong


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was; controls that wait below the window are left out."""
    common = before["controls"].keys() & after["controls"].keys()
    one, other = (
        {key: state["controls"][key] for key in common}
        | {f"{key} in the address": value for key, value in state["address"].items()}
        | {key: state[key] for key in ("model", "head", "query")}
        for state in (before, after)
    )
    return [
        f"{key}: {other.get(key)!r} in place of {one.get(key)!r}"
        for key in one.keys() | other.keys()
        if one.get(key) != other.get(key)
    ]


async def sequence(tab: Tab, kind: str) -> list[str]:
    """Make one sequence; return what was lost."""
    tab.done, tab.other = [], False
    state = await tab.state()
    tab.expected = {key: state[key] for key in ("model", "head", "query")}
    acts: list[Callable[[], Any]] = [tab.head, tab.head, tab.query, tab.control, tab.control]
    if kind == "back":
        await asyncio.sleep(LATER)
        await tab.settle()
        before = await tab.state()
        await tab.chance.choice([tab.head, tab.model])()
        await asyncio.sleep(tab.chance.choice(PAUSES))
        await tab.settle()
        await asyncio.sleep(LATER)
        await tab.page.go_back()
        await asyncio.sleep(0.3)
        await tab.settle()
        return differences(before, await tab.state())
    for _ in range(tab.chance.randint(3, 6)):
        await tab.chance.choice([*acts, tab.model])()
        await asyncio.sleep(tab.chance.choice(PAUSES))
    await asyncio.sleep(0.3)
    await tab.settle()
    wrong = await tab.lost()
    if kind == "again" and not wrong:
        before = await tab.state()
        await tab.page.reload()
        await tab.page.wait_for_selector("[role=gridcell][data-name]")
        await tab.settle()
        wrong = differences(before, await tab.state())
    return wrong


async def work(tab: Tab, groups: list[int], seed: int, passes: bool, report: list[str]) -> None:
    while groups:
        group = groups.pop()
        name = NAMES[group % len(NAMES)]
        link: dict[str, object] = {"model": MODELS[0], "head": "L0H1"}
        if passes and not group % 3:
            link |= {"context": 128, "start": "false", "windows": 1000 + group}
        tab.chance = random.Random(1000 * seed + group)
        try:
            await tab.open(name, **link)
            for kind in KINDS:
                if wrong := await sequence(tab, kind):
                    told = f"seed {seed}, group {group} ({kind}) on {name}: {wrong}"
                    report.append(f"{told} after {tab.done}")
        except Error as error:
            report.append(
                f"seed {seed}, group {group} on {name}: {str(error).partition(chr(10))[0]}"
            )


async def run(url: str, count: int, seed: int, tabs: int = 4, passes: bool = False) -> list[str]:
    """Make so many sequences; return what was lost, a line for each."""
    report: list[str] = []
    groups = [*range(-(-count // len(KINDS)))]
    random.Random(seed).shuffle(groups)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"]
        )
        opened = []
        for _ in range(tabs):
            context = await browser.new_context(viewport={"width": 1400, "height": 950})
            page, line = await context.new_page(), Line()
            await page.route_web_socket(STREAM, line.connect)
            page.set_default_timeout(PATIENCE * 1000)
            page.on("pageerror", lambda error: report.append(f"in the page: {error}"))
            opened.append(Tab(page, line, url, random.Random(seed)))
        await asyncio.gather(*(work(each, groups, seed, passes, report) for each in opened))
        await browser.close()
    return report
