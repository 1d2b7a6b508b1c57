"""``python -m bench.matrix``: 144 heads on 128 tokens drawn by us, by BertViz and by CircuitsVis.

Each writes one page, which Chromium opens from the disk: the time is from the beginning of the
navigation until all heads are painted, in the browser's own clock. The other two are measured where
they are installed (``pip install --no-deps bertviz circuitsvis``). BertViz loads three libraries
from a CDN: ``--libraries`` names a folder with ``require.min.js``, ``d3.min.js`` and
``jquery.min.js``; without it BertViz draws nothing, as without a network.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import Browser, Route, TimeoutError

import poskernel_core as pk
from tests.support.browser import launched

LAYERS, HEADS, TOKENS = 12, 12, 128
PATIENCE = 900  # seconds
PAGE = "<!DOCTYPE html><html><head><meta charset='utf-8'></head><body>{}</body></html>"
PAINTED = """drawn => {
  const look = () => {
    if (!drawn()) return setTimeout(look, 20);
    const painted = new MessageChannel();
    painted.port1.onmessage = () => (window.painted = performance.now());
    requestAnimationFrame(() => painted.port2.postMessage(0));
  };
  addEventListener("DOMContentLoaded", look);
}"""
ELEMENTS = """() => {
  const count = root => [...root.querySelectorAll("*")].reduce(
    (sum, node) => sum + 1 + (node.shadowRoot ? count(node.shadowRoot) : 0), 0);
  return count(document);
}"""
DRAWN = {
    "PosKernel": "document.querySelector('[data-drawn]')",
    "BertViz": f"document.querySelectorAll('svg line').length >= {LAYERS * HEADS * TOKENS}",
    "CircuitsVis": f"document.querySelectorAll('canvas').length >= {LAYERS * HEADS}",
}


def patterns() -> np.ndarray:
    """Return attention ``[layer, head, query, key]`` of random scores that fall with distance."""
    random = np.random.default_rng(0)
    offset = np.arange(TOKENS)[:, None] - np.arange(TOKENS)
    slope = random.uniform(0, 0.5, (LAYERS, HEADS, 1, 1))
    scores = 2 * random.normal(size=(LAYERS, HEADS, TOKENS, TOKENS)) - slope * offset
    weights = np.exp(np.where(offset < 0, -np.inf, scores))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def ours(found: np.ndarray, tokens: list[str]) -> str:
    """Return our page."""
    return pk.matrix(found, tokens).html(whole=True)


def bertviz(found: np.ndarray, tokens: list[str]) -> str:
    """Return the page of BertViz's ``model_view``."""
    from bertviz import model_view

    layers = [torch.from_numpy(layer)[None] for layer in found]
    return PAGE.format(model_view(layers, tokens, html_action="return").data)


def circuitsvis(found: np.ndarray, tokens: list[str]) -> str:
    """Return the page of CircuitsVis' ``attention_heads``, with its script in it."""
    from circuitsvis.attention import attention_heads

    return PAGE.format(attention_heads(found.reshape(-1, TOKENS, TOKENS), tokens).local_src)


def opened(browser: Browser, file: Path, drawn: str, libraries: Path | None) -> tuple[float, int]:
    """Return the seconds until a page is painted (infinite: not in time), and its elements."""

    def lend(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if libraries is not None and (libraries / name).is_file():
            route.fulfill(path=libraries / name, headers={"access-control-allow-origin": "*"})
        else:
            route.abort()

    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.route(re.compile("^https?:"), lend)
    page.add_init_script(f"({PAINTED})(() => {drawn})")
    try:
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_function("window.painted", timeout=1000 * PATIENCE)
        count = page.evaluate(ELEMENTS)
        return page.evaluate("painted") / 1000, count
    except TimeoutError:
        return float("inf"), 0
    finally:
        page.close()


def main() -> None:
    """Write the pages, open them, and print the table."""
    parser = argparse.ArgumentParser(prog="bench.matrix", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libraries", type=Path)
    options = parser.parse_args()
    found, tokens = patterns(), [f" word{at % 37}" for at in range(TOKENS)]
    ways: dict[str, Callable[[np.ndarray, list[str]], str]] = {
        "PosKernel": ours, "BertViz": bertviz, "CircuitsVis": circuitsvis,
    }  # fmt: skip
    print(
        f"{LAYERS * HEADS} heads, {TOKENS} tokens, median of {options.rounds}; "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n"
    )
    print("| | file (MB) | drawn (s) | elements |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        for name, write in ways.items():
            file = Path(made, f"{name}.html")
            try:
                file.write_text(write(found, tokens), encoding="utf-8")
            except ImportError as error:
                print(f"| {name} | not measured: {error.name} is not installed | | |")
                continue
            taken: list[float] = []
            for _ in range(options.rounds):
                with launched("--disable-gpu") as browser:
                    seconds, count = opened(browser, file, DRAWN[name], options.libraries)
                taken.append(seconds)
                if seconds == float("inf"):
                    break
            size, median = file.stat().st_size / 1e6, statistics.median(taken)
            drawn = f"over {PATIENCE}" if median == float("inf") else f"{median:.2f}"
            print(f"| {name} | {size:.1f} | {drawn} | {count:,} |")


if __name__ == "__main__":
    main()
