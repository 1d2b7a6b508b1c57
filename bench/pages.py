"""``python -m bench.pages``: measure waiting times of the pages in a real browser.

Every figure is the median of several tries. With stored results: a click on a head until its kernel
is redrawn, a pin, a change to another page, and a reload. With a new server and an empty cache: the
first request of the landing page, and of a deep link. Last, a reload of the page with the
small patterns of a random model's 144 heads, on a text of 128 tokens.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.browser import find_browser
from tests.support.server import Server, serve

DEMO = Path(__file__).resolve().parents[1] / "poskernel_core/demo/demo-gpt2"
WORDS = "the king of the garden saw a house by the water and "
FLAGS = ("--no-sandbox", "--disable-gpu")
PATIENCE = 120_000  # milliseconds
GRID = "[role=gridcell][data-name=L0H0]"
CURVE = ".st-key-figure-kernel .js-plotly-plot"
HEADS = ("L1H2", "L2H4", "L3H7", "L0H5", "L2H1", "L3H0")
DRAWN = """name => {
  const title = document.querySelector(".st-key-card-kernel h3");
  const plot = document.querySelector(".st-key-figure-kernel .js-plotly-plot");
  if (!title?.textContent.startsWith(name) || !plot?.data) return false;
  const said = JSON.stringify(plot.data, (_, v) => ArrayBuffer.isView(v) ? Array.from(v) : v);
  return said !== window.seen && performance.now() - window.clicked;
}"""
NOTE_CLICKS = """() => {
  document.addEventListener("click", () => { window.clicked = performance.now(); }, true);
}"""
PINNED = """() => {
  const buttons = [...document.querySelectorAll("button")];
  const found = buttons.some(each => each.textContent.includes("Unpin L2H6"));
  return found && performance.now() - window.clicked;
}"""
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
REMEMBER = """() => {
  document.addEventListener("click", () => { window.clicked = performance.now(); }, true);
  const plot = document.querySelector(".st-key-figure-kernel .js-plotly-plot");
  window.seen = JSON.stringify(plot.data, (_, v) => ArrayBuffer.isView(v) ? Array.from(v) : v);
}"""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="bench.pages", description=__doc__)
    parser.add_argument("--tries", type=int, default=10, help="tries behind every median")
    tries = parser.parse_args().tries
    print(
        f"demo-gpt2, Chromium; {platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} before\n\n"
        f"{'what':48} {'median':>8} {'fastest':>8} {'slowest':>8}   (ms, {tries} tries)"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        with fresh() as server:
            warm(browser, server)
            for what, measure in MEASURES.items():
                tell(what, measure(browser, server, tries))
        tell(
            "first request, empty cache, to grid drawn",
            [cold(browser, "/", GRID) for _ in range(tries)],
        )
        address = "/positional_kernels?head=L2H6"
        curve = ".st-key-figure-curve .js-plotly-plot"
        tell(
            "cold deep link to kernel drawn", [cold(browser, address, curve) for _ in range(tries)]
        )
        tell("reload to 144 heads on a stored text drawn", patterns(browser, tries))
        browser.close()


def tell(what: str, times: list[float]) -> None:
    """Print one line of the table."""
    numbers = (statistics.median(times), min(times), max(times))
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
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """Open an address in a new browser context."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    yield page
    context.close()


def warm(browser: Browser, server: Server) -> None:
    """Visit both pages once, so that results are stored and the browser has cached the scripts."""
    with opened(browser, f"{server.url}/") as page:
        page.wait_for_selector(CURVE)
        for head in HEADS:
            click(page, head)
    with opened(browser, f"{server.url}/positional_kernels") as page:
        page.wait_for_selector(".st-key-figure-curve .js-plotly-plot")


def cold(browser: Browser, address: str, wanted: str) -> float:
    """Return the milliseconds from a new server's first request until ``wanted`` is drawn."""
    with fresh() as server:
        began = time.perf_counter()
        with opened(browser, server.url + address) as page:
            page.wait_for_selector(wanted)
            return 1000 * (time.perf_counter() - began)


def click(page: Page, head: str) -> float:
    """Click on a head; return the milliseconds until its kernel is redrawn (browser's clock)."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.evaluate(REMEMBER)
    page.locator(f"[role=gridcell][data-name={head}]").click()
    return float(page.wait_for_function(DRAWN, arg=head).json_value())


def clicks(browser: Browser, server: Server, tries: int) -> list[float]:
    """Time clicks on heads of the landing page, one second apart."""
    times = []
    with opened(browser, f"{server.url}/") as page:
        page.wait_for_selector(CURVE)
        for number in range(tries):
            page.wait_for_timeout(1000)
            times.append(click(page, HEADS[number % len(HEADS)]))
    return times


def switches(browser: Browser, server: Server, tries: int) -> list[float]:
    """Time changes from the landing page to the kernels page, by the link in the sidebar."""
    times = []
    for _ in range(tries):
        with opened(browser, f"{server.url}/") as page:
            page.wait_for_selector(CURVE)
            page.wait_for_timeout(1000)
            began = time.perf_counter()
            page.get_by_role("link", name="Kernel", exact=True).click()
            page.wait_for_selector(".st-key-figure-curve .js-plotly-plot")
            times.append(1000 * (time.perf_counter() - began))
    return times


def reloads(browser: Browser, server: Server, tries: int) -> list[float]:
    """Time reloads of the landing page, until its kernel is drawn."""
    times = []
    with opened(browser, f"{server.url}/") as page:
        for _ in range(tries):
            page.wait_for_selector(CURVE)
            page.wait_for_timeout(1000)
            began = time.perf_counter()
            page.reload()
            page.wait_for_selector(CURVE)
            times.append(1000 * (time.perf_counter() - began))
    return times


def pins(browser: Browser, server: Server, tries: int) -> list[float]:
    """Time pins of a head on the landing page, until the button changes; unpin after each."""
    times = []
    with opened(browser, f"{server.url}/?head=L2H6") as page:
        page.wait_for_selector(CURVE)
        for _ in range(tries):
            page.wait_for_timeout(1000)
            page.evaluate(NOTE_CLICKS)
            page.get_by_role("button", name="Pin L2H6", exact=True).click()
            times.append(float(page.wait_for_function(PINNED).json_value()))
            page.wait_for_timeout(1000)
            page.get_by_role("button", name="Unpin L2H6").click()
            page.get_by_role("button", name="Pin L2H6", exact=True).wait_for()
    return times


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
                    page.wait_for_timeout(1000)
                    began = time.perf_counter()
                    page.reload()
                    page.wait_for_function(PAINTED)
                    times.append(1000 * (time.perf_counter() - began))
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


MEASURES: dict[str, Callable[[Browser, Server, int], list[float]]] = {
    "stored click to kernel redrawn": clicks,
    "pin to pinned": pins,
    "page switch to kernel drawn": switches,
    "reload to kernel drawn": reloads,
}


if __name__ == "__main__":
    main()
