"""Where the browser for the tests is; run as a module, it is printed, or the exit code is 1."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BUNDLES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


def find_browser() -> str | None:
    """Path of an installed Chromium or Chrome, None if there is none."""
    on_path = (found for name in NAMES if (found := shutil.which(name)))
    bundled = (bundle for bundle in BUNDLES if Path(bundle).exists())
    return next(on_path, None) or next(bundled, None)


@contextmanager
def launched(*flags: str) -> Iterator[Browser]:
    """The browser for tools and benchmarks, started with further flags; it is closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", *flags]
        )
        yield browser
        browser.close()


if __name__ == "__main__":
    browser = find_browser()
    print(browser or "no Chromium or Chrome was found")
    sys.exit(browser is None)
