"""Build the distributions, install them into an empty environment, and try them as a user would.

``make release`` runs this. It refuses a checkout with changes, a version without its dated section
in ``CHANGELOG.md``, or one whose ``make test`` did not pass last. It builds the documentation's
site, and wheels and source distributions in ``dist/``, checked by twine, and installs the wheels
with ``pip install`` (the newest versions that fit; torch as in ``requirements.txt``). Then it runs
``poskernel show`` and ``poskernel serve`` in an empty folder, and opens the landing page and the
documentation in a browser. Where a container engine answers, it builds both images. Prints a table
of sizes and SHA-256 checksums; exits with an error if anything failed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import expect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import launched
from tests.support.server import free_port, running

DIST = ROOT / "dist"
TESTED = ROOT / "build" / "tested"
"""The commit on which `make test` passed last."""
PROJECTS = (ROOT, ROOT / "poskernel_core" / "demo")
BUILD = {"docker": ("build",), "podman": ("build", "--format=docker")}
"""How an engine builds an image; podman's own format would drop the health check."""
MODEL = "demo-gpt2"
PATIENCE = 180_000
"""Milliseconds to wait; the machine may be busy."""


def call(*command: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        [str(each) for each in command], cwd=cwd, env=env, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nThis failed: {' '.join(map(str, command))}")
    return done.stdout


def refuse_unready() -> None:
    version = (ROOT / "poskernel_core" / "__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'__version__ = "(.*)"', version)[0]
    if changed := call("git", "status", "--porcelain").splitlines():
        sys.exit(f"Expected a checkout without changes, found {len(changed)}: commit them first.")
    told = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", told, re.MULTILINE):
        sys.exit(
            f"Expected a dated section [{version}] in CHANGELOG.md, found none: write it first."
        )
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        sys.exit(f"Expected version {version} in CITATION.cff, found another: change it first.")
    tested = TESTED.read_text(encoding="utf-8") if TESTED.is_file() else ""
    if tested != call("git", "rev-parse", "HEAD"):
        sys.exit("Expected that every test has passed on this commit: run 'make test' first.")


def images() -> dict[str, tuple[int, str]]:
    engine = container_engine()
    if engine is None:
        print("Without Docker or podman no images are built.")
        return {}
    found = {}
    for target in ("all", "serving"):
        name = f"poskernel{'' if target == 'all' else '-serving'}"
        call(engine, *BUILD[engine], "--quiet", "--target", target, "--tag", name, ROOT)
        told = call(engine, "image", "inspect", "--format", "{{.Size}} {{.Id}}", name).split()
        found[f"image {name}"] = int(told[0]), told[1].removeprefix("sha256:")
    return found


def container_engine() -> str | None:
    for engine in filter(shutil.which, BUILD):
        if not subprocess.run([engine, "info"], capture_output=True).returncode:
            return engine
    return None


def tell(built: dict[str, tuple[int, str]]) -> None:
    """Print the table of sizes and checksums, and write that of the files to ``SHA256SUMS``."""
    for file in sorted(DIST.glob("poskernel*")):
        size, digest = file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()
        built = {file.name: (size, digest)} | built
    for name, (size, digest) in sorted(built.items()):
        print(f"{name:45} {size / 1e6:7.1f} MB  {digest}")
    sums = "".join(f"{built[name][1]}  {name}\n" for name in sorted(built) if "image " not in name)
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")


def build(*, pictures: bool) -> list[Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    options = () if pictures else ("--no-pictures",)
    print(call(sys.executable, ROOT / "tools" / "site.py", *options))  # a part of the wheel
    for project in PROJECTS:
        call(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, project)
    files = sorted(DIST.iterdir())
    print(call(sys.executable, "-m", "twine", "check", "--strict", *files))
    shutil.make_archive(str(DIST / "poskernel-site"), "gztar", ROOT / "build" / "site")
    return [file for file in files if file.suffix == ".whl"]


def install(wheels: list[Path], folder: Path, *, uv: bool) -> Path:
    """Install the wheels into an empty environment; return the folder with its executables."""
    torch = folder / "torch.txt"
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    torch.write_text(next(line for line in pins if line.startswith("torch==")), encoding="utf-8")
    programs = folder / "venv" / "bin"
    call(sys.executable, "-m", "venv", folder / "venv")
    python = programs / "python"
    uv_install = (Path(sys.executable).parent / "uv", "pip", "install", "--python", python)
    install = uv_install if uv else (python, "-m", "pip", "install")
    call(*install, "--quiet", "--constraint", torch, *wheels)
    return programs


def try_out(programs: Path, folder: Path, picture: Path) -> None:
    """Show a result, serve the dashboard, and open its landing page, from an empty folder."""
    strange = {name: value for name, value in os.environ.items() if "POSKERNEL" not in name}
    strange |= {"HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    strange.pop("PYTHONPATH", None)
    empty = folder / "elsewhere"
    empty.mkdir()
    print(call(programs / "poskernel", cwd=empty, env=strange))
    print(call(programs / "poskernel", "show", "etc", MODEL, cwd=empty, env=strange)[:400], "...")
    url = f"http://localhost:{(port := free_port())}"
    command = [str(programs / "poskernel"), "serve", "--port", str(port)]
    with (
        running(command, f"{url}/health", folder / "server.log", strange, empty),
        launched() as browser,
    ):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(url)
        cells = page.locator(".st-key-card-etc [role=gridcell]")
        expect(cells.first).to_be_visible(timeout=PATIENCE)
        expect(page.locator(".curve .point.kernel").first).to_be_visible(timeout=PATIENCE)
        page.screenshot(path=picture)
        print(f"The landing page shows {cells.count()} heads: {picture.name}")
        page.goto(f"{url}/docs/tutorial.html")
        expect(page.locator("h1")).to_be_visible(timeout=PATIENCE)
    if left := [each.name for each in empty.iterdir()]:
        sys.exit(f"Expected nothing written into the folder, found {left}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", action="store_true", help="install by uv, not by pip")
    parser.add_argument(
        "--try",
        action="store_true",
        dest="trial",
        help="any state of the checkout; no images, no pictures of pages",
    )
    options = parser.parse_args()
    if not options.trial:
        refuse_unready()
    wheels = build(pictures=not options.trial)
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()
        programs = install(wheels, folder, uv=options.uv)
        installed = time.monotonic()
        try_out(programs, folder, DIST / "landing-page.png")
        used = time.monotonic()
    tell({} if options.trial else images())
    print(
        f"Installed by {'uv' if options.uv else 'pip'} in {installed - start:.0f} s; from nothing "
        f"to the landing page {used - start:.0f} s."
    )


if __name__ == "__main__":
    main()
