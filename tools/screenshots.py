"""Take the pictures of the documentation: every page of the running app, and the tutorial's steps.

``python tools/screenshots.py`` (or ``make screenshots``) starts the app on the default cache, waits
until each page is drawn completely, and writes ``docs/screenshots/PAGE-SCHEME.png``, in light and
dark; a step of the tutorial in light: what the link before the picture leads to. Results that
are not in the cache are computed first, which takes a minute for the demo model.
"""

from __future__ import annotations

import argparse
import io
import itertools
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pages import FIRST, NAMES, module_of
from tests.support.browser import find_browser
from tests.support.server import serve

FOLDER = ROOT / "docs" / "screenshots"
SCHEMES = ("light", "dark")
PATIENCE = 600_000  # milliseconds; the pass of 500 windows may have to run
HEIGHT = 2400  # pixels of the window: beyond the last card of any picture
MARGIN = 8
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""The last two flags render 3D without a graphics card."""
STEP = re.compile(
    r"\]\(http://localhost:8501(?P<link>[^)#]*)#?(?P<anchor>[\w-]*)\)"
    r"|\]\(screenshots/(?P<name>tutorial-[\w-]+)-light\.png\)"
)
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
DRAWN = """() => !document.querySelector(
  "[data-testid=stSpinner], [data-testid=stSkeleton], [data-stale=true]")
  && ![...document.querySelectorAll(".figure[data-due]")].some(each => each.offsetParent)
  && [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")]
    .every(each => each.closest(".st-key-instrument, .st-key-drawn")  // they draw nothing
      || each.shadowRoot?.querySelector("div > div > :not(style)"))"""


@dataclass(frozen=True)
class Shot:
    """One picture: its name, the page's address, and the last card in it (empty: whole page)."""

    name: str
    address: str
    last: str


def shots() -> list[Shot]:
    """Return the pictures that the pages declare, in the order of the navigation."""
    places = {name: module_of(name).PLACE for name in NAMES}
    return [
        Shot(
            name.replace("_", "-"),
            f"/{'' if name == FIRST else name}?{place.picture.chosen}",
            place.picture.last,
        )
        for name, place in places.items()
        if place.picture
    ]


def steps() -> list[Shot]:
    """Return the tutorial's pictures; a link's anchor names the last card in the next picture."""
    found, link, anchor = [], "", ""
    for step in STEP.finditer((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")):
        if step["name"]:
            found.append(Shot(step["name"], link, anchor))
        else:
            link, anchor = step["link"], step["anchor"] or ""
    return found


def take(page: Page, url: str, shot: Shot) -> bytes:
    """Open a page, wait until it is drawn completely, and return its picture as PNG."""
    page.goto(url + shot.address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    bars = page.get_by_role("progressbar", name="progress")
    for _ in range(20):  # a page may compute several results in turn
        page.wait_for_selector(SETTLED)
        page.wait_for_timeout(2000)  # fonts, styles and the last transition
        if not bars.count():
            break
        expect(bars).to_have_count(0)
    page.wait_for_function(DRAWN)
    last = f".st-key-card-{shot.last}" if shot.last else "[data-testid=stMainBlockContainer]"
    card = page.locator(last).bounding_box()
    if card is None:
        raise RuntimeError(f"{shot.address} shows no card {shot.last!r}")
    width = page.evaluate("innerWidth")
    bottom = card["y"] + card["height"] + MARGIN
    clip = {"x": 0, "y": 0, "width": width, "height": min(bottom, HEIGHT)}
    return page.screenshot(animations="disabled", clip=clip)


def save(picture: bytes, file: Path) -> None:
    """Write a PNG without its alpha channel, losslessly compressed as far as possible."""
    Image.open(io.BytesIO(picture)).convert("RGB").save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1000} kB")


def main() -> int:
    """Take the pictures; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    parser.add_argument("--cache", type=Path, default=ROOT / "cache", help="store of results")
    parser.add_argument("--only", help="the name of one picture, such as explore")
    parser.add_argument("--width", type=int, default=1400, help="of the window, in pixels")
    options = parser.parse_args()
    executable = find_browser()
    if executable is None:
        print("Neither Chromium nor Google Chrome was found: install one.", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serve(options.cache.resolve(), Path(scratch) / "server.log", shipped=True) as server,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=executable, args=FLAGS)
        every = [*itertools.product(SCHEMES, shots()), *itertools.product(SCHEMES[:1], steps())]
        for scheme, shot in [each for each in every if options.only in (None, each[1].name)]:
            page = browser.new_page(
                viewport={"width": options.width, "height": HEIGHT}, color_scheme=scheme
            )
            page.set_default_timeout(PATIENCE)
            save(take(page, server.url, shot), options.out / f"{shot.name}-{scheme}.png")
            page.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
