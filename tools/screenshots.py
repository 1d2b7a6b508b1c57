"""Take the pictures of the documentation, each from the link that stands around it.

``tools/site.py`` takes them for the site; ``python tools/screenshots.py`` (``make screenshots``)
takes those of the README, which are kept in ``docs/screenshots/``. The app is started on the
default cache. For every ``[![WORDS](NAME.png)](http://localhost:8501/PAGE?CHOICES#CARD)`` in the
documentation the link is opened, and when all is drawn, ``NAME.png`` is the card alone, as a reader
would frame it. A picture with the name of its page shows the page from the top down to the card;
without a card, the whole page. Results that are not in the cache are computed first.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pages import FIRST
from tests.support.browser import find_browser, launched
from tests.support.server import serve

FOLDER = ROOT / "docs" / "screenshots"
PATIENCE = 600_000  # milliseconds; the pass of 500 windows may have to run
WIDE, NARROW, HEIGHT = 1400, 860, 2400
"""The window of a page, that of a card, and the height of both, in pixels: beyond the last card."""
MARGIN = 8
FLAGS = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""They render 3D without a graphics card."""
PICTURE = re.compile(
    r"\[!\[[^\]]*\]\((?:[\w./-]*/)?(?P<name>[\w-]+)\.png\)\]"
    r"\(http://localhost:8501/(?P<page>\w*)(?P<query>\??[^)#\s]*)#?(?P<card>[\w-]*)\)"
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
    """One picture: its name, a page's address without the card, and the card."""

    name: str
    page: str
    query: str
    card: str

    @property
    def alone(self) -> bool:
        return self.name != (self.page or FIRST).replace("_", "-")


def shots(*, readme: bool) -> list[Shot]:
    """Return the pictures of the README, or all others."""
    files = sorted((ROOT / "docs").rglob("*.md"))
    texts = "".join(each.read_text(encoding="utf-8") for each in files)
    found = dict.fromkeys(Shot(**each.groupdict()) for each in PICTURE.finditer(texts))
    if twice := [name for name, n in Counter(each.name for each in found).items() if n > 1]:
        raise SystemExit(f"Two links have one picture: {', '.join(twice)}.")
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    return [each for each in found if (f"/{each.name}.png)" in first) == readme]


def take(page: Page, url: str, shot: Shot) -> bytes:
    """Open a link, wait until the page or card is drawn completely, and return it as PNG."""
    card = page.locator(f".st-key-card-{shot.card}")
    if shot.alone:
        page.goto(f"{url}/{shot.page}{shot.query}&embed=card:{shot.card}")
        expect(card).to_be_visible()
    else:
        page.goto(f"{url}/{shot.page}{shot.query}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    bars = page.get_by_role("progressbar", name="progress")
    for _ in range(20):  # a page may compute several results in turn
        page.wait_for_selector(SETTLED)
        page.wait_for_timeout(2000)  # fonts, styles and the last transition
        if not bars.count():
            break
        expect(bars).to_have_count(0)
    page.wait_for_function(DRAWN)
    if shot.alone:
        return card.screenshot(animations="disabled")
    last = card if shot.card else page.get_by_test_id("stMainBlockContainer")
    box = last.bounding_box()
    assert box is not None
    bottom = box["y"] + box["height"] + MARGIN
    clip = {"x": 0, "y": 0, "width": WIDE, "height": min(bottom, HEIGHT)}
    return page.screenshot(animations="disabled", clip=clip)


def save(picture: bytes, file: Path) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1000} kB")


def take_all(wanted: Sequence[Shot], folder: Path) -> bool:
    """Write pictures to a folder; return False if there is no browser to take them."""
    if find_browser() is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serve(ROOT / "cache", Path(scratch) / "server.log", shipped=True) as server,
        launched(*FLAGS) as browser,
    ):
        for shot in wanted:
            page = browser.new_page(
                viewport={"width": NARROW if shot.alone else WIDE, "height": HEIGHT},
                device_scale_factor=2 if shot.alone else 1,
                color_scheme="light",
            )
            page.set_default_timeout(PATIENCE)
            save(take(page, server.url, shot), folder / f"{shot.name}.png")
            page.close()
    return True


if __name__ == "__main__":
    if not take_all(shots(readme=True), FOLDER):
        sys.exit("Neither Chromium nor Google Chrome was found: install one.")
