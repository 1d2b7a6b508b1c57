"""Build both images, run them with a read-only root, and see from outside that they serve.

``make container`` runs this. The image that computes must draw the grid, compute a new one, and
show it again after it was killed, from its volume alone. The one without torch must draw what comes
with the project, refuse in one sentence to compute, and show what the other computed once its
archive is imported. Prints a table; exits with 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import find_browser
from tools.container_engines import Engine, Running, find_engine

WHOLE, SERVING = "localhost/poskernel", "localhost/poskernel-serving"
TARGETS = {WHOLE: "all", SERVING: "serving"}
PINNED = {WHOLE: "requirements.txt", SERVING: "requirements-serving.txt"}
NOT_THERE = ("transformer_lens",)
"""What is pinned and lies in neither image."""

IMPORTS = """
import importlib, sys
from importlib.metadata import packages_distributions
wanted = {name.replace("_", "-").lower() for name in sys.argv[1:]}
for module, packages in sorted(packages_distributions().items()):
    found = wanted & {name.replace("_", "-").lower() for name in packages}
    if found and module.isidentifier() and not module.startswith("_"):
        importlib.import_module(module)
        wanted -= found
assert not wanted, wanted
import pandas, pyarrow.parquet
"""
"""Imports every package named: trimming may have taken too much."""

STORE = "/var/cache/poskernel"
MODEL = "demo-gpt2"
SHOWN_FIRST = f"/?model={MODEL}"
"""What comes with the project."""

COMPUTED = f"/?model={MODEL}&windows=50&context=64"
"""What does not, so that it has to be computed."""

ARCHIVE = f"{STORE}/{MODEL}.zip"
REFUSED = "computes nothing itself"
WORKER = "poskernel_core.engine.worker"
PATIENCE = 180.0
"""Seconds; the machine may be busy."""

expect.set_options(timeout=PATIENCE * 1000)


@dataclass
class Report:
    """What was measured of one image, and which checks it passed."""

    image: str
    megabytes: float = 0.0
    build_seconds: float = 0.0
    health_seconds: float = 0.0
    passed: dict[str, bool] = field(default_factory=dict)

    def check(self, name: str, act: Callable[[], object]) -> None:
        """Note whether something went as it should; what it said goes to standard error."""
        self.passed[name] = False
        try:
            act()
            self.passed[name] = True
        except (AssertionError, OSError, RuntimeError, PlaywrightError) as error:
            print(f"{self.image}: {name}: {error}", file=sys.stderr)


class Trial:
    """One image under trial: its volume, and the browser that looks at it."""

    def __init__(self, engine: Engine, browser: Browser, tag: str, report: Report) -> None:
        self.engine, self.browser, self.tag, self.report = engine, browser, tag, report
        self.volume = engine.volume()
        self.port = _free_port()
        self.running: Running | None = None

    def start(self) -> float:
        """Serve, and return the seconds until it says that it is well."""
        began = time.monotonic()
        self.running = self.engine.start(self.tag, self.volume, self.port)
        while time.monotonic() - began < PATIENCE:
            try:
                with urllib.request.urlopen(self._at("/_stcore/health"), timeout=5) as answer:
                    if answer.status == 200:
                        return time.monotonic() - began
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"no answer within {PATIENCE:g} s")

    def stop(self) -> None:
        """End it without asking."""
        if self.running is not None:
            self.engine.kill(self.running)
        self.running = None

    def is_well(self, computes: bool) -> None:
        """See that its store can be written, and whether it would compute."""
        with urllib.request.urlopen(self._at("/health"), timeout=PATIENCE) as answer:
            told = json.load(answer)
        if (told["store"], told["computes"]) != ("writable", computes):
            raise RuntimeError(f"its health: {told}")

    def draws_grid(self, address: str, worker: bool) -> None:
        """See that the grid is drawn, and whether a worker was needed."""
        with self._opened(address) as page:
            grid = page.locator("[role=gridcell][data-name=L0H0]")
            trouble = page.get_by_test_id("stAlertContentError")
            expect(grid.or_(trouble).first).to_be_visible()
            expect(trouble).to_have_count(0, timeout=1000)
        self._has_worker(worker)

    def refuses(self, address: str) -> None:
        """See that new work is refused in a sentence, and that no worker was started for it."""
        with self._opened(address) as page:
            expect(page.get_by_text(REFUSED).first).to_be_visible()
            expect(page.get_by_text("Traceback")).to_have_count(0)
        self._has_worker(False)

    def root_is_closed(self) -> None:
        """See that an ordinary user runs, who can write the volume and nothing else."""
        told = f"id -u; touch {STORE}/written && touch /app/written"
        code, said = self.once("sh", "-c", told)
        if code == 0 or not said.startswith("1000") or f"{STORE}/written" in said:
            raise RuntimeError(f"exit code {code}: {said}")

    def imports_all(self) -> None:
        """See that every package that was installed can be imported."""
        lines = (ROOT / PINNED[self.tag]).read_text("utf-8").splitlines()
        named = [line.partition("==")[0] for line in lines if "==" in line]
        self.must("python", "-c", IMPORTS, *(each for each in named if each not in NOT_THERE))

    def once(self, *command: str, also: dict[str, str] | None = None) -> tuple[int, str]:
        """Run a command on the volume."""
        return self.engine.once(self.tag, {self.volume: STORE} | (also or {}), command)

    def must(self, *command: str, also: dict[str, str] | None = None) -> None:
        """Run a command on the volume that must succeed."""
        code, said = self.once(*command, also=also)
        if code:
            raise RuntimeError(f"{' '.join(command)}: exit code {code}: {said[-500:]}")

    def _opened(self, address: str) -> Page:
        page = self.browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(self._at(address))
        return page

    def _has_worker(self, expected: bool) -> None:
        assert self.running is not None
        found = any(WORKER in each for each in self.engine.commands(self.running))
        if found != expected:
            raise RuntimeError(f"a worker was {'not ' * expected}started")

    def _at(self, address: str) -> str:
        return f"http://127.0.0.1:{self.port}{address}"


def try_whole(trial: Trial) -> None:
    """Compute, kill, start again: the result is still there."""
    report = trial.report
    report.check("root read-only, ordinary user", trial.root_is_closed)
    report.check("packages import", trial.imports_all)
    report.health_seconds = trial.start()
    report.check("well", lambda: trial.is_well(computes=True))
    report.check("grid drawn", lambda: trial.draws_grid(SHOWN_FIRST, worker=False))
    report.check("new grid computed", lambda: trial.draws_grid(COMPUTED, worker=True))
    trial.stop()
    trial.start()
    report.check("there after kill and restart", lambda: trial.draws_grid(COMPUTED, worker=False))
    trial.stop()
    export = ("python", "-m", "poskernel_core", "export", MODEL, ARCHIVE)
    report.check("exported", lambda: trial.must(*export))


def try_serving(trial: Trial, source: str) -> None:
    """Refuse to compute; take in an archive; show it."""
    report = trial.report
    report.check("root read-only, ordinary user", trial.root_is_closed)
    report.check("packages import", trial.imports_all)
    report.health_seconds = trial.start()
    report.check("well", lambda: trial.is_well(computes=False))
    report.check("grid drawn", lambda: trial.draws_grid(SHOWN_FIRST, worker=False))
    report.check("new work refused", lambda: trial.refuses(COMPUTED))
    trial.stop()
    take_in = ("python", "-m", "poskernel_core", "import", f"/mnt/{MODEL}.zip")
    report.check("archive imported", lambda: trial.must(*take_in, also={source: "/mnt"}))
    trial.start()
    report.check("imported grid drawn", lambda: trial.draws_grid(COMPUTED, worker=False))
    trial.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _built(engine: Engine, tag: str, torch_index: str) -> Report:
    print(f"Building {tag} with {engine.name}: this takes a few minutes.", file=sys.stderr)
    report = Report(tag)
    began = time.monotonic()
    engine.build(TARGETS[tag], tag, torch_index)
    report.build_seconds = time.monotonic() - began
    report.megabytes = engine.size(tag) / 1e6
    return report


def main() -> int:
    """Build, try, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-index-url", default="", help="an index that serves torch alone")
    chosen = parser.parse_args()
    engine, executable = find_engine(), find_browser()
    if executable is None:
        sys.exit("Expected Chromium or Google Chrome, to see what is drawn: install one of them.")
    reports = [_built(engine, tag, chosen.torch_index_url) for tag in TARGETS]
    trials: list[Trial] = []
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
            )
            trials += [Trial(engine, browser, report.image, report) for report in reports]
            whole, serving = trials
            try_whole(whole)
            try_serving(serving, whole.volume)
            browser.close()
    finally:
        for trial in trials:
            trial.stop()
        engine.clean()
    print("| image | MB | build, s | start to health, s | checks |\n|---|---|---|---|---|")
    for report in reports:
        checks = ", ".join(
            f"{name}{'' if fine else ' FAILED'}" for name, fine in report.passed.items()
        )
        print(
            f"| {report.image} | {report.megabytes:.0f} | {report.build_seconds:.0f} | "
            f"{report.health_seconds:.1f} | {checks} |"
        )
    return int(not all(fine for report in reports for fine in report.passed.values()))


if __name__ == "__main__":
    sys.exit(main())
