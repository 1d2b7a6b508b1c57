"""Build both images, run them with a read-only root, and check from outside that they serve.

``make container`` runs this with Docker or podman. The image with torch must draw the grid, compute
a new one, and, after being killed, show it again from its volume. The image without torch must draw
the shipped results, refuse to compute (with one sentence), and show results imported from the other
image. Prints a line for each check; exits with 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import find_browser
from tests.support.server import free_port
from tools.release import BUILD, container_engine

SERVED = "numpy, pandas, plotly, pyarrow.parquet, streamlit"
MODULES = {
    "serving": SERVED,
    "all": f"{SERVED}, scipy.stats, torch, transformers",
}
"""Modules that must be importable after trimming, by target of the Dockerfile."""

STORE = "/var/cache/poskernel"
MODEL = "demo-gpt2"
SHOWN_FIRST = f"/?model={MODEL}"
"""A page of shipped results."""

COMPUTED = f"/?model={MODEL}&windows=50&context=64"
"""A page whose results have to be computed."""

REFUSED = "computes nothing itself"
WORKER = "poskernel_core.engine.worker"
PATIENCE = 180.0
"""Seconds to wait; the machine may be busy."""

expect.set_options(timeout=PATIENCE * 1000)


class Image:
    """An image, its volume, and the failed checks.

    Args:
        engine: the program, ``docker`` or ``podman``.
        target: the target in the Dockerfile.
    """

    def __init__(self, engine: str, browser: Browser, target: str) -> None:
        self.engine, self.browser, self.target = engine, browser, target
        self.tag = f"localhost/poskernel-{target}"
        self.volume = f"poskernel-{uuid.uuid4().hex}"
        self.host = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.host}"
        self.failed: list[str] = []

    def ask(self, *command: str) -> str:
        """Run a command of the engine that must succeed; return its output."""
        done = subprocess.run([self.engine, *command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:3])}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout.strip()

    def once(self, *command: str, mounts: tuple[str, ...] = ()) -> str:
        """Run a command in a new container with the volume."""
        volumes = [f"--volume={each}" for each in (f"{self.volume}:{STORE}", *mounts)]
        return self.ask("run", "--rm", "--read-only", *volumes, self.tag, *command)

    def build(self, torch_index: str) -> None:
        """Build the image, print its size, and check its files and packages."""
        began = time.monotonic()
        index = f"TORCH_INDEX_URL={torch_index}"
        self.ask(*BUILD[self.engine], "--target", self.target, "--tag", self.tag,
                 "--build-arg", index, ".")  # fmt: skip
        size = int(self.ask("image", "inspect", "--format", "{{.Size}}", self.tag)) / 1e6
        print(f"{self.tag}: {size:.0f} MB, built in {time.monotonic() - began:.0f} s", flush=True)
        self.check("root read-only, ordinary user", self.root_is_closed)
        self.check("packages import", self.once, "python", "-c", f"import {MODULES[self.target]}")

    @contextmanager
    def served(self) -> Iterator[None]:
        """Run the server with the volume as the only writable place; kill it at the end."""
        began, container = time.monotonic(), f"{self.volume}-served"
        publish, volume = f"{self.host}:8501", f"{self.volume}:{STORE}"
        self.ask("run", "--detach", "--read-only", "--name", container, "--publish", publish,
                 "--volume", volume, self.tag)  # fmt: skip
        try:
            while not self.is_up():
                if time.monotonic() - began > PATIENCE:
                    raise RuntimeError(f"no answer within {PATIENCE:g} s")
                time.sleep(0.05)
            print(f"{self.tag}: served after {time.monotonic() - began:.1f} s", flush=True)
            yield
        finally:
            self.ask("rm", "--force", container)

    def is_up(self) -> bool:
        """Return whether the server answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5):
                return True
        except OSError:
            return False

    def check(self, name: str, act: Callable[..., object], *args: object) -> None:
        """Run a check and print whether it passed."""
        try:
            act(*args)
            print(f"{self.tag}: {name}", flush=True)
        except (AssertionError, OSError, RuntimeError, PlaywrightError) as error:
            self.failed.append(name)
            print(f"{self.tag}: {name} FAILED: {error}", flush=True)

    def is_well(self, computes: bool) -> None:
        """Check the store, whether the server can compute, and that the documentation is there."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=PATIENCE) as answer:
            told = json.load(answer)
        assert (told["store"], told["computes"]) == ("writable", computes), f"its health: {told}"
        with urllib.request.urlopen(f"{self.url}/docs/tutorial.html", timeout=PATIENCE):
            pass

    def draws_grid(self, address: str, worker: bool) -> None:
        """Check that the grid is drawn, and whether a worker was started."""
        with self.opened(address) as page:
            grid = page.locator("[role=gridcell][data-name=L0H0]")
            trouble = page.get_by_test_id("stAlertContentError")
            expect(grid.or_(trouble).first).to_be_visible()
            expect(trouble).to_have_count(0, timeout=1000)
        self.has_worker(worker)

    def refuses(self, address: str) -> None:
        """Check that new work is refused with a sentence, and that no worker was started."""
        with self.opened(address) as page:
            expect(page.get_by_text(REFUSED).first).to_be_visible()
            expect(page.get_by_text("Traceback")).to_have_count(0)
        self.has_worker(False)

    def has_worker(self, expected: bool) -> None:
        """Check whether a worker runs."""
        found = WORKER in self.ask("top", f"{self.volume}-served", "-eo", "pid,args")
        assert found == expected, f"a worker was {'not ' * expected}started"

    def opened(self, address: str) -> Page:
        """Open a page."""
        page = self.browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(self.url + address)
        return page

    def root_is_closed(self) -> None:
        """Check that the server runs as an ordinary user, who can write only to the volume."""
        tried = f"touch {STORE}/written && ! touch /app/written && id -u"
        said = self.once("sh", "-c", tried)
        assert said == "1000", f"the user is {said}"


def try_whole(image: Image) -> None:
    """Compute a result, kill the server, start again: the result must still be there."""
    with image.served():
        image.check("well", image.is_well, True)
        image.check("grid drawn", image.draws_grid, SHOWN_FIRST, False)
        image.check("new grid computed", image.draws_grid, COMPUTED, True)
    with image.served():
        image.check("there after kill and restart", image.draws_grid, COMPUTED, False)
    export = ("python", "-m", "poskernel_core", "export", MODEL, f"{STORE}/{MODEL}.zip")
    image.check("exported", image.once, *export)


def try_serving(image: Image, source: str) -> None:
    """Check that computing is refused, then import an archive from another volume and show it."""
    with image.served():
        image.check("well", image.is_well, False)
        image.check("grid drawn", image.draws_grid, SHOWN_FIRST, False)
        image.check("new work refused", image.refuses, COMPUTED)
    take_in = ("python", "-m", "poskernel_core", "import", f"/mnt/{MODEL}.zip")
    image.check("archive imported", lambda: image.once(*take_in, mounts=(f"{source}:/mnt",)))
    with image.served():
        image.check("imported grid drawn", image.draws_grid, COMPUTED, False)


def main() -> int:
    """Build and test the images; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-index-url", default="", help="an index that serves torch alone")
    torch_index = parser.parse_args().torch_index_url
    engine = container_engine()
    executable = find_browser()
    if engine is None or executable is None:
        sys.exit("Expected Docker or podman, running, and Chromium or Google Chrome: install them.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        whole, serving = (Image(engine, browser, target) for target in ("all", "serving"))
        try:
            whole.build(torch_index)
            try_whole(whole)
            serving.build(torch_index)
            try_serving(serving, whole.volume)
        finally:
            whole.ask("volume", "rm", "--force", whole.volume, serving.volume)
            browser.close()
    return int(bool(whole.failed or serving.failed))


if __name__ == "__main__":
    sys.exit(main())
