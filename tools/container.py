"""Build both images, run them with a read-only root, and check from outside that they serve.

``make container`` runs this with Docker or podman. The image with torch must draw the grid, compute
a new one, and, after being killed, show it again from its volume. The image without torch must draw
the shipped results, refuse to compute (with one sentence), and show results imported from the other
image. Prints a line for each check that passed; the first that fails ends it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import until
from tests.support.browser import find_browser, launched
from tests.support.server import answers, free_port
from tools.release import BUILD, container_engine

SERVED = "numpy, pandas, plotly, pyarrow.parquet, streamlit"
MODULES = {"serving": SERVED, "all": f"{SERVED}, scipy.stats, torch, transformers"}
"""Modules that must be importable after trimming, by target of the Dockerfile."""

STORE = "/var/cache/poskernel"
MODEL = "demo-gpt2"
SHOWN_FIRST = f"/?model={MODEL}"
"""A page of shipped results."""

COMPUTED = f"/?model={MODEL}&windows=50&context=64"
"""A page whose results have to be computed."""

REFUSED = "computes nothing itself"
WORKER = "poskernel_core.engine.worker"
COMMAND = ("python", "-m", "poskernel_core")
PATIENCE = 180.0
"""Seconds to wait; the machine may be busy."""

expect.set_options(timeout=PATIENCE * 1000)


class Image:
    """An image, its volume, and the address at which it is served.

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

    def ask(self, *command: str) -> str:
        """Run a command of the engine that must succeed; return its output."""
        done = subprocess.run([self.engine, *command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:3])}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout.strip()

    def say(self, text: str) -> None:
        print(f"{self.tag}: {text}", flush=True)

    def once(self, what: str, *command: str, mounts: tuple[str, ...] = ()) -> str:
        """Run a command in a new container with the volume; print what it has shown."""
        volumes = [f"--volume={each}" for each in (f"{self.volume}:{STORE}", *mounts)]
        said = self.ask("run", "--rm", "--read-only", *volumes, self.tag, *command)
        self.say(what)
        return said

    def build(self, torch_index: str) -> None:
        """Build the image; it runs as an ordinary user, who can write only to the volume."""
        began = time.monotonic()
        index = f"TORCH_INDEX_URL={torch_index}"
        self.ask(*BUILD[self.engine], "--target", self.target, "--tag", self.tag,
                 "--build-arg", index, ".")  # fmt: skip
        size = int(self.ask("image", "inspect", "--format", "{{.Size}}", self.tag)) / 1e6
        self.say(f"{size:.0f} MB, built in {time.monotonic() - began:.0f} s")
        tried = f"touch {STORE}/written && ! touch /app/written && id -u"
        assert self.once("root read-only, ordinary user", "sh", "-c", tried) == "1000"
        self.once("packages import", "python", "-c", f"import {MODULES[self.target]}")

    @contextmanager
    def served(self) -> Iterator[None]:
        """Run the server with the volume as the only writable place; kill it at the end."""
        began, container = time.monotonic(), f"{self.volume}-served"
        publish, volume = f"{self.host}:8501", f"{self.volume}:{STORE}"
        self.ask("run", "--detach", "--read-only", "--name", container, "--publish", publish,
                 "--volume", volume, self.tag)  # fmt: skip
        try:
            until(lambda: answers(f"{self.url}/_stcore/health"), PATIENCE)
            self.say(f"served after {time.monotonic() - began:.1f} s")
            yield
        finally:
            self.ask("rm", "--force", container)

    def is_well(self, computes: bool) -> None:
        """Check the store, whether the server can compute, and that the documentation is there."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=PATIENCE) as answer:
            told = json.load(answer)
        assert (told["store"], told["computes"]) == ("writable", computes), f"its health: {told}"
        urllib.request.urlopen(f"{self.url}/docs/tutorial.html", timeout=PATIENCE).close()
        self.say("well")

    def draws_grid(self, what: str, address: str, worker: bool = False) -> None:
        """Check that the grid is drawn, and whether a worker was started."""
        with self.opened(address) as page:
            grid = page.locator("[role=gridcell][data-name=L0H0]")
            trouble = page.get_by_test_id("stAlertContentError")
            expect(grid.or_(trouble).first).to_be_visible()
            expect(trouble).to_have_count(0, timeout=1000)
        self.has_worker(worker)
        self.say(what)

    def refuses(self, address: str) -> None:
        """Check that new work is refused with a sentence, and that no worker was started."""
        with self.opened(address) as page:
            expect(page.get_by_text(REFUSED).first).to_be_visible()
            expect(page.get_by_text("Traceback")).to_have_count(0)
        self.has_worker(False)
        self.say("new work refused")

    def has_worker(self, expected: bool) -> None:
        found = WORKER in self.ask("top", f"{self.volume}-served", "-eo", "pid,args")
        assert found == expected, f"a worker was {'not ' * expected}started"

    def opened(self, address: str) -> Page:
        page = self.browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(self.url + address)
        return page


def try_whole(image: Image) -> None:
    """Compute a result, kill the server, start again: the result must still be there."""
    with image.served():
        image.is_well(True)
        image.draws_grid("grid drawn", SHOWN_FIRST)
        image.draws_grid("new grid computed", COMPUTED, True)
    with image.served():
        image.draws_grid("there after kill and restart", COMPUTED)
    image.once("exported", *COMMAND, "export", MODEL, f"{STORE}/{MODEL}.zip")


def try_serving(image: Image, source: str) -> None:
    """Check that computing is refused, then import an archive from another volume and show it."""
    with image.served():
        image.is_well(False)
        image.draws_grid("grid drawn", SHOWN_FIRST)
        image.refuses(COMPUTED)
    file = f"/mnt/{MODEL}.zip"
    image.once("archive imported", *COMMAND, "import", file, mounts=(f"{source}:/mnt",))
    with image.served():
        image.draws_grid("imported grid drawn", COMPUTED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-index-url", default="", help="an index that serves torch alone")
    torch_index = parser.parse_args().torch_index_url
    engine = container_engine()
    if engine is None or find_browser() is None:
        sys.exit("Expected Docker or podman, running, and Chromium or Google Chrome: install them.")
    with launched("--disable-gpu") as browser:
        whole, serving = (Image(engine, browser, target) for target in ("all", "serving"))
        try:
            whole.build(torch_index)
            try_whole(whole)
            serving.build(torch_index)
            try_serving(serving, whole.volume)
        finally:
            whole.ask("volume", "rm", "--force", whole.volume, serving.volume)


if __name__ == "__main__":
    main()
