"""Installed from a wheel, away from the checkout: the command, the package, what comes with it."""

import email
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from playwright.sync_api import expect

from poskernel_core.common.specs import SCHEMA
from tests.support.server import PATIENCE, ROOT, environment, free_port, wait_for
from tests.support.visit import cell, visit
from tools.build_hook import DASHBOARD

# pytest runs tests of one browser together: where all have it, module fixtures are made once.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("browser_name")]

PACKAGE, CACHED = "poskernel_core", "__pycache__"
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "tools")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OFFLINE = ("--no-deps", "--no-index", "--quiet")
MODEL = "demo-gpt2"
SMALL = ("--context", "32", "--windows", "4", "--device", "cpu")


@dataclass(frozen=True)
class Installed:
    """A virtual environment that the wheel is installed in, and a user who has nothing yet."""

    wheel: Path
    python: Path
    home: Path

    @property
    def environment(self):
        ours = environment(self.home / "hub", shipped=True) | {"HOME": str(self.home)}
        for name in ("POSKERNEL_CACHE", "PYTHONPATH", "XDG_CACHE_HOME"):
            ours.pop(name, None)
        return ours

    def run(self, folder, program, *arguments):
        done = subprocess.run(
            [self.python.with_name(program), *arguments], cwd=folder,
            env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout


def call(*command):
    return subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=True
    ).stdout


def files_of(folder):
    """The files of the checkout in a folder, or the file itself, by their paths."""
    found = [ROOT / folder] if (ROOT / folder).is_file() else (ROOT / folder).rglob("*")
    return {
        str(file.relative_to(ROOT)) for file in found if file.is_file() and CACHED not in file.parts
    }


def environment_at(folder):
    """An environment with nothing in it but a way to the packages of this one."""
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    site = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A checkout without what is no part of the product."""
    folder = tmp_path_factory.mktemp("source")
    for name in (PACKAGE, *DASHBOARD, *BESIDE):
        copy = shutil.copyfile if (ROOT / name).is_file() else shutil.copytree
        if (ROOT / name).exists():  # the site may not be built
            copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def installed(source, tmp_path_factory):
    """The package as `pip install .` leaves it; other packages are those of this environment."""
    root = tmp_path_factory.mktemp("install")
    (root / "home").mkdir()
    call(*PIP, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", root / "wheels", source)
    (wheel,) = (root / "wheels").iterdir()
    python = environment_at(root / "venv")
    call(*PIP, "--python", python, "install", *OFFLINE, wheel)
    return Installed(wheel, python, root / "home")


def test_all_files_come_with_it(installed):
    package = files_of(PACKAGE) - {f"{PACKAGE}/demo/pyproject.toml"}
    dashboard = {f"{PACKAGE}/dashboard/{file}" for name in DASHBOARD for file in files_of(name)}
    with zipfile.ZipFile(installed.wheel) as archive:
        found = set(archive.namelist())
    assert package | dashboard == {name for name in found if ".dist-info/" not in name}
    assert f"{PACKAGE}/ledger/published.json" in package


def test_published_in_two(source, tmp_path):
    demos = source / PACKAGE / "demo"
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path)
    call(*build, source)
    call(*build, "--wheel", demos)
    named, found = {}, set()
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            (told,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            about = email.message_from_bytes(archive.read(told))
            named[about["Name"]] = about
            here = {name for name in archive.namelist() if ".dist-info/" not in name}
            assert not found & here
            found |= here
    with zipfile.ZipFile(next(tmp_path.glob("poskernel_demo-*.whl"))) as archive:
        assert all(not name.startswith(PACKAGE) or f"{PACKAGE}/demo/" in name
                   for name in archive.namelist())  # fmt: skip

    needed = [Requirement(each) for each in named["poskernel"].get_all("Requires-Dist")]
    (demo,) = (each for each in needed if each.name == "poskernel-demo")
    assert demo.specifier.contains(named["poskernel-demo"]["Version"])
    assert str(SCHEMA) == named["poskernel-demo"]["Version"].partition(".")[0]
    assert {
        f"{PACKAGE}/dashboard/{name}" for name in ("serve.py", "docs/concepts/kernels.md")
    } <= found
    assert files_of(PACKAGE) - {f"{PACKAGE}/demo/pyproject.toml"} <= found


def test_ranges_hold_the_pins():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = PROJECT["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["mcp"]]
    ranges = [Requirement(each) for each in needed]

    assert sorted(map(canonicalize_name, pinned)) == sorted(
        canonicalize_name(each.name) for each in ranges
    )
    of = {canonicalize_name(name): version for name, version in pinned.items()}
    assert all(each.specifier.contains(of[canonicalize_name(each.name)]) for each in ranges)


def test_an_editable_installation(source, tmp_path):
    python = environment_at(tmp_path / "venv")
    call(*PIP, "--python", python, "install", *OFFLINE, "--no-build-isolation", "-e", source)
    code = (
        "from importlib.util import find_spec\n"
        "from poskernel_core.server import script\n"
        "print(script(), *map(find_spec, ['pages', 'serving', 'tools']))"
    )

    assert f"{source / 'serve.py'} None None None" == call(python, "-P", "-c", code).strip()


@pytest.mark.browser
def test_the_dashboard(installed, tmp_path, page):
    port, log = free_port(), tmp_path / "log"
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    with log.open("wb") as output:
        server = subprocess.Popen(
            [installed.python.with_name("poskernel"), "serve", "--port", str(port)],
            cwd=empty, env=installed.environment, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        wait_for(f"http://localhost:{port}/health", server)
        visit(page, f"http://localhost:{port}")

        assert cell(page, "L0H0").is_visible()
        expect(page.locator(".curve .line.kernel")).to_be_visible()
    finally:
        server.send_signal(signal.SIGINT)
        assert 0 == server.wait(PATIENCE)
    assert re.search(rf"PosKernel is served at http://localhost:{port}\n", log.read_text())
    assert not re.search(
        "Traceback|Streamlit", log.read_text()
    )  # which greets without our settings
    assert [] == os.listdir(empty)


def test_the_command(installed, tmp_path):
    """No file of the folder that it is run in is taken for a module."""
    (tmp_path / "random.py").write_text("raise SystemExit('taken for a module')\n")

    shown = installed.run(tmp_path, "poskernel", "show", "etc", MODEL, "--html", "out.html")
    assert "Written to out.html.\n" == shown
    computed = installed.run(tmp_path, "poskernel", "show", "profile", MODEL, *SMALL, "--json")
    assert 32 == json.loads(computed)["run"]["context"]
    code = (
        "import poskernel_core as pk\n"
        "from poskernel_core.common.folders import default_directory\n"
        "print(pk.__file__, default_directory(), sep='\\n')"
    )
    package, directory = map(Path, installed.run(tmp_path, "python", "-P", "-c", code).splitlines())

    assert installed.python.parents[1] in package.parents
    assert not (package.parents[1] / "cache").exists()
    assert installed.home in directory.parents
    assert (directory / "cache.db").is_file()  # with the user's caches

    assert "Plotly.newPlot" in (tmp_path / "out.html").read_text(encoding="utf-8")
    assert {"out.html", "random.py"} == {file.name for file in tmp_path.iterdir()}
