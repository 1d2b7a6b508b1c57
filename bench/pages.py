"""``python -m bench.pages``: measure waiting times of the pages in a real browser.

First, what the browser draws itself: from a click, a key or a move of the slider to the new curve,
in the browser's own clock: at rest, with the processor slowed to a quarter, and beside two busy
processes. Then, what waits for the server: a change of page (in the browser's clock) and a reload,
until the first figure is there, and a new server's first page and first deep link, each beside a
bare Streamlit app with one Plotly chart a page (``bench/bare.py``), also with cards and a sidebar
as ours. Then the messages of a visit of every page, and how far it moves while it is drawn (layout
shift), and the reload of a page with the small patterns of 144 heads on a text of 128 tokens.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page

from pages import FIRST, NAMES
from tests.support.browser import launched
from tests.support.server import Server, free_port, running, serve

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "poskernel_core/demo/demo-gpt2"
WORDS = "the king of the garden saw a house by the water and "
PATIENCE = 120_000  # milliseconds
CURVE = ".curve .point"
CHART = ".js-plotly-plot .main-svg"
WIDE, PHONE = 1400, 390
"""Widths of windows, pixels."""
CARDS = 15
"""Cards of the bare app that stands beside ours."""
HEADS = ("L10H2", "L20H8", "L7H1", "L29H0", "L14H4", "L2H2", "L18H6", "L25H5")
WATCH = """() => {
  window.samples = [];
  let began = 0;
  for (const kind of ["pointerdown", "keydown"])
    addEventListener(kind, event => { began = event.timeStamp; }, true);
  const place = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")]
    .map(each => each.shadowRoot?.querySelector(".curve svg")).find(Boolean);
  new MutationObserver(() => {
    if (!began) return;
    const start = began, painted = new MessageChannel();
    began = 0;
    let told = false;
    const tell = () => { if (!told) told = samples.push(performance.now() - start); };
    painted.port1.onmessage = tell;  // waits while keys and frames come one after another
    requestAnimationFrame(() => { painted.port2.postMessage(0); requestAnimationFrame(tell); });
  }).observe(place, { childList: true });
}"""
SWITCHED = """([title, figure]) => {
  window.switched = 0;
  addEventListener("click", ({ timeStamp }) => {
    const there = () => {
      const parts = document.querySelectorAll(
        "[data-testid=stMain] [data-testid=stBidiComponentIsolated]");
      const roots = [document, ...[...parts].flatMap(each => each.shadowRoot ?? [])];
      if (document.querySelector("h1")?.textContent.includes(title)
          && roots.some(root => root.querySelector(figure)))
        window.switched = performance.now() - timeStamp;
      else requestAnimationFrame(there);
    };
    there();
  }, { capture: true, once: true });
}"""
"""After the next click: when the heading and the figure of a page are there, by its own clock."""
SHIFT = """() => new Promise(done => {
  let sum = 0;
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) sum += each.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 500);
})"""
PAINTED = """() => {
  for (const place of document.querySelectorAll("[data-testid=stBidiComponentIsolated]")) {
    const root = place.shadowRoot;
    if (root?.querySelectorAll(".patterns [role=gridcell]").length !== 144) continue;
    const canvas = root.querySelector(".patterns canvas");
    if (!canvas?.width) return false;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value, at) => at % 4 === 3 && value > 0);
  }
  return false;
}"""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="bench.pages", description=__doc__)
    parser.add_argument("--tries", type=int, default=10, help="tries behind every median")
    tries = parser.parse_args().tries
    print(
        f"smollm2-135m-instruct-q4 (270 heads), Chromium; {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n\n"
        f"{'what':48} {'median':>8} {'95 %':>8} {'slowest':>8}   (ms)"
    )
    with launched("--disable-gpu") as browser:
        with fresh() as server:
            walks(browser, server)
            for what, times in served(browser, server.url, tries):
                tell(what, times)
            for width in (WIDE, PHONE):
                shifts(browser, server, width)
        for cards in (0, CARDS):
            with bare(cards) as url:
                for what, times in bare_served(browser, url, tries):
                    tell(f"  bare app, {cards} cards: {what}", times)
        few = max(3, tries // 2)
        tell("cold: landing page to curve", [cold(browser, "/", CURVE) for _ in range(few)])
        address = "/positional_kernels?head=L2H6"
        tell("cold: deep link to curve", [cold(browser, address, CURVE) for _ in range(few)])
        tell("  bare app: cold, to chart", [bare_cold(browser) for _ in range(few)])
        tell("reload to 144 heads on a stored text drawn", patterns(browser, few))


def tell(what: str, times: list[float]) -> None:
    """Print one line of the table."""
    ordered = sorted(times)
    most = ordered[int(0.95 * (len(ordered) - 1))]
    numbers = (statistics.median(times), most, max(times))
    print(f"{what:48} " + " ".join(f"{number:8.0f}" for number in numbers), flush=True)


@contextmanager
def fresh() -> Iterator[Server]:
    """Start a server with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        cache.mkdir()
        with serve(cache, Path(folder) / "server.log", shipped=True) as server:
            yield server


@contextmanager
def bare(cards: int = 0) -> Iterator[str]:
    """Start the bare app, with so many cards a page, and wait until it answers."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "bench/bare.py")]
    flags = [f"--server.port={port}", "--server.address=127.0.0.1", "--server.headless=true"]
    command += [*flags, "--", str(cards)]
    with running(command, f"{url}/_stcore/health", Path(os.devnull), os.environ):
        yield url


@contextmanager
def opened(
    browser: Browser, address: str, width: int = WIDE, heard: list[int] | None = None
) -> Iterator[Page]:
    """Open an address in a new browser context.

    The sizes of the server's messages are added to ``heard``.
    """
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    if heard is not None:
        page.on(
            "websocket", lambda socket: socket.on("framereceived", lambda m: heard.append(len(m)))
        )
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    yield page
    context.close()


@contextmanager
def busy() -> Iterator[None]:
    """Keep two processors busy, as a pass does."""
    others = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(2)]
    for each in others:
        each.start()
    yield
    for each in others:
        each.terminate()


def _burn() -> None:
    while True:
        sum(range(10**6))


def walks(browser: Browser, server: Server) -> None:
    """Time choices of heads and positions until the curve is painted (browser's clock)."""
    with opened(browser, f"{server.url}/") as page:
        page.wait_for_selector(CURVE)
        page.wait_for_timeout(4000)
        page.evaluate(WATCH)
        developer = page.context.new_cdp_session(page)
        for rate, how in ((1, ""), (4, ", a quarter of the processor")):
            developer.send("Emulation.setCPUThrottlingRate", {"rate": rate})
            walk(page, how)
        developer.send("Emulation.setCPUThrottlingRate", {"rate": 1})
        with busy():
            walk(page, ", beside two busy processes")


def walk(page: Page, how: str) -> None:
    """Choose heads by clicks and keys, and positions by keys."""
    page.wait_for_timeout(1500)
    for name in HEADS:
        page.locator(f"[data-name={name}]").first.click()
        page.wait_for_timeout(600)
    tell(f"click on a head to curve{how}", taken(page))
    for step in range(40):
        page.keyboard.press(("ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight")[step % 4])
        page.wait_for_timeout(60)
    tell(f"arrow key to curve{how}", taken(page))
    page.locator(".position input").focus()
    for step in range(12):
        page.keyboard.press("ArrowLeft" if step < 6 else "ArrowRight")
        page.wait_for_timeout(60)
    tell(f"slider of the position to curve{how}", taken(page))


def taken(page: Page) -> list[float]:
    """Return the times since the last call."""
    page.wait_for_timeout(1500)
    return [float(each) for each in page.evaluate("samples.splice(0)")]


def served(browser: Browser, url: str, tries: int) -> Iterator[tuple[str, list[float]]]:
    """Time changes of page by the bar, and reloads, until the first figure is there."""
    there, back = [], []
    with opened(browser, url) as page:
        page.wait_for_selector(CURVE)
        for _ in range(tries + 1):  # the first is not counted: scripts are loaded once
            page.wait_for_timeout(2500)
            there.append(switch(page, link_in(page, "One head", "Kernel"), "Kernel", CURVE))
            page.wait_for_timeout(2500)
            back.append(switch(page, link_in(page, "Heads", "Map"), "Map", CURVE))
        again = [reload(page, lambda: page.wait_for_selector(CURVE)) for _ in range(tries)]
    yield "change of page, Map to Kernel, to curve", there[1:]
    yield "change of page, Kernel to Map, to curve", back[1:]
    yield "reload to curve", again


def reload(page: Page, wait: Callable[[], object]) -> float:
    """Reload a page after a pause; return the milliseconds until ``wait`` has ended."""
    page.wait_for_timeout(1500)
    began = time.perf_counter()
    page.reload()
    wait()
    return 1000 * (time.perf_counter() - began)


def switch(page: Page, link: Locator, title: str, figure: str) -> float:
    """Open a page by its link; return the milliseconds until its figure is drawn."""
    page.evaluate(SWITCHED, [title, figure])
    link.click()
    page.wait_for_selector(f"h1:has-text('{title}')")
    while not (took := page.evaluate("window.switched")):
        page.wait_for_timeout(100)
    return float(took)


def link_in(page: Page, section: str, title: str) -> Locator:
    """Unfold a section of the bar; return the link to one of its pages."""
    page.get_by_test_id("stTopNavSection").filter(has_text=section).click()
    return page.get_by_test_id("stTopNavDropdownLink").filter(has_text=title).first


def bare_served(browser: Browser, url: str, tries: int) -> Iterator[tuple[str, list[float]]]:
    """Time the same in the bare app."""
    there = []
    with opened(browser, url) as page:
        page.wait_for_selector(CHART)
        for step in range(2 * tries):
            page.wait_for_timeout(1500)
            title = "First" if step % 2 else "Second"
            link = page.get_by_test_id("stTopNavLink").filter(has_text=title)
            there.append(switch(page, link, title, CHART))
        again = [reload(page, lambda: page.wait_for_selector(CHART)) for _ in range(tries)]
    yield "change of page, to chart", there
    yield "reload to chart", again


def shifts(browser: Browser, server: Server, width: int) -> None:
    """Print messages and layout shift of every page that is opened."""
    for name in NAMES:
        address, heard = f"{server.url}/{'' if name == FIRST else name}", list[int]()
        with opened(browser, address, width, heard) as page:
            page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
            page.wait_for_timeout(3000)
            shift = float(page.evaluate(SHIFT))
        messages = f"{len(heard):4} messages, {sum(heard) / 1000:4.0f} kB"
        print(f"{name:24} at {width:4} pixels: {messages}, layout shift {shift:.3f}", flush=True)


def cold(browser: Browser, address: str, wanted: str) -> float:
    """Return the milliseconds from a new server's first request until ``wanted`` is drawn."""
    with fresh() as server:
        return drawn(browser, server.url + address, wanted)


def drawn(browser: Browser, address: str, wanted: str) -> float:
    """Return the milliseconds from opening an address until ``wanted`` is drawn."""
    began = time.perf_counter()
    with opened(browser, address) as page:
        page.wait_for_selector(wanted)
        return 1000 * (time.perf_counter() - began)


def bare_cold(browser: Browser) -> float:
    """Return the same of the bare app."""
    with bare() as url:
        return drawn(browser, url, CHART)


def patterns(browser: Browser, tries: int) -> list[float]:
    """Time reloads of the page of a stored text, until the patterns of all heads are painted."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        text = save_model(place / "model")
        (place / "cache").mkdir()
        log = place / "server.log"
        times = []
        with serve(place / "cache", log, models=str(place / "model")) as server:
            address = server.link("/own_text", model=place / "model", text=text, context=256)
            with opened(browser, address) as page:
                page.wait_for_function(PAINTED)
                for _ in range(tries):
                    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
                    times.append(reload(page, lambda: page.wait_for_function(PAINTED)))
        return times


def save_model(folder: Path) -> str:
    """Save a random model of 12 layers with 12 heads; return a text of 128 tokens."""
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=96, n_layer=12, n_head=12)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(tokenizer.decode(tokenizer(30 * WORDS).input_ids[:128]))


if __name__ == "__main__":
    main()
