"""``python -m bench.pages``: how long a reader waits, in a real browser.

Every figure is the median of several tries: a server with an empty cache whose first reader opens
the landing page; then, everything being stored, a click on a head until its kernel is redrawn, the
change to another page, a reload, and a link to a page of a server that has drawn nothing yet.
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

from tests.browser import find_browser
from tests.server import Server, serve

__all__ = ["main"]

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
        address = "/positional_kernels?cell=L2H6"
        curve = ".st-key-figure-curve .js-plotly-plot"
        tell(
            "cold deep link to kernel drawn", [cold(browser, address, curve) for _ in range(tries)]
        )
        browser.close()


def tell(what: str, times: list[float]) -> None:
    """Print one line of the table."""
    numbers = (statistics.median(times), min(times), max(times))
    print(f"{what:48} " + " ".join(f"{number:8.0f}" for number in numbers), flush=True)


@contextmanager
def fresh() -> Iterator[Server]:
    """A server with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        cache.mkdir()
        with serve(cache, Path(folder) / "server.log", shipped=True) as server:
            yield server


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """A reader's page at an address."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    yield page
    context.close()


def warm(browser: Browser, server: Server) -> None:
    """Visit both pages once: whatever is not stored is computed, the browser keeps the scripts."""
    with opened(browser, f"{server.url}/") as page:
        page.wait_for_selector(CURVE)
        for head in HEADS:
            click(page, head)
    with opened(browser, f"{server.url}/positional_kernels") as page:
        page.wait_for_selector(".st-key-figure-curve .js-plotly-plot")


def cold(browser: Browser, address: str, wanted: str) -> float:
    """Milliseconds from the first request of a server's life until something is drawn."""
    with fresh() as server:
        began = time.perf_counter()
        with opened(browser, server.url + address) as page:
            page.wait_for_selector(wanted)
            return 1000 * (time.perf_counter() - began)


def click(page: Page, head: str) -> float:
    """Milliseconds from a click on a head, as the browser has it, until its kernel is redrawn."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.evaluate(REMEMBER)
    page.locator(f"[role=gridcell][data-name={head}]").click()
    return float(page.wait_for_function(DRAWN, arg=head).json_value())


def clicks(browser: Browser, server: Server, tries: int) -> list[float]:
    """Clicks on heads of the landing page, one second apart."""
    times = []
    with opened(browser, f"{server.url}/") as page:
        page.wait_for_selector(CURVE)
        for number in range(tries):
            page.wait_for_timeout(1000)
            times.append(click(page, HEADS[number % len(HEADS)]))
    return times


def switches(browser: Browser, server: Server, tries: int) -> list[float]:
    """From the landing page to the kernels page, by the link in the sidebar."""
    times = []
    for _ in range(tries):
        with opened(browser, f"{server.url}/") as page:
            page.wait_for_selector(CURVE)
            page.wait_for_timeout(1000)
            began = time.perf_counter()
            page.get_by_role("link", name="Positional kernels").click()
            page.wait_for_selector(".st-key-figure-curve .js-plotly-plot")
            times.append(1000 * (time.perf_counter() - began))
    return times


def reloads(browser: Browser, server: Server, tries: int) -> list[float]:
    """The landing page loaded again, until its kernel is drawn."""
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


MEASURES: dict[str, Callable[[Browser, Server, int], list[float]]] = {
    "stored click to kernel redrawn": clicks,
    "page switch to kernel drawn": switches,
    "reload to kernel drawn": reloads,
}


if __name__ == "__main__":
    main()
