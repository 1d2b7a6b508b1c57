"""Installed from a wheel, away from the checkout: the command, the package, what comes with it."""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.server import ROOT, environment

pytestmark = pytest.mark.slow

PACKAGE, CACHED = "poskernel_core", "__pycache__"
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "requirements.txt")
MODEL = "demo-gpt2"
SMALL = ("--context", "32", "--texts", "4", "--device", "cpu")


@dataclass(frozen=True)
class Installed:
    """A virtual environment that the wheel is installed in, and a user who has nothing yet."""

    wheel: Path
    python: Path
    home: Path

    def run(self, folder, program, *arguments):
        """Run a program of the environment in a folder; returns what it prints."""
        ours = environment(self.home / "hub", shipped=True)
        for name in ("POSKERNEL_CACHE", "PYTHONPATH", "XDG_CACHE_HOME"):
            ours.pop(name, None)
        done = subprocess.run(
            [self.python.with_name(program), *arguments], cwd=folder,
            env=ours | {"HOME": str(self.home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout


def call(*command):
    """Run a command that must succeed; returns what it prints."""
    return subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package as `pip install .` leaves it; other packages are those of this environment."""
    root = tmp_path_factory.mktemp("install")
    source, wheels, home = (root / name for name in ("source", "wheels", "home"))
    home.mkdir()
    shutil.copytree(ROOT / PACKAGE, source / PACKAGE, ignore=shutil.ignore_patterns(CACHED))
    for name in BESIDE:
        shutil.copyfile(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    offline = ("--no-deps", "--no-index", "--quiet")
    call(*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", wheels, source)
    (wheel,) = wheels.iterdir()
    call(sys.executable, "-m", "venv", "--without-pip", root / "venv")
    python = root / "venv" / "bin" / "python"
    site = Path(
        call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    call(*pip, "--python", python, "install", *offline, wheel)
    return Installed(wheel, python, home)


def test_all_files_come_with_it(installed):
    """The wheel holds every file of the package, models, texts, results and published figures."""
    ours = {
        str(file.relative_to(ROOT))
        for file in (ROOT / PACKAGE).rglob("*")
        if file.is_file() and CACHED not in file.parts
    }
    with zipfile.ZipFile(installed.wheel) as archive:
        found = set(archive.namelist())

    assert ours == {name for name in found if ".dist-info/" not in name}
    assert f"{PACKAGE}/ledger/published.json" in ours


def test_the_command(installed, tmp_path):
    """Models, a figure from what comes with the package, and one that a worker computes.

    No file of the folder that it is run in is taken for a module.
    """
    (tmp_path / "random.py").write_text("raise SystemExit('taken for a module')\n")

    assert f"\n{MODEL} " in f"\n{installed.run(tmp_path, 'poskernel', 'models')}"
    assert "" == installed.run(tmp_path, "poskernel", "show", "etc", MODEL, "--html", "out.html")
    computed = installed.run(tmp_path, "poskernel", "show", "profile", MODEL, *SMALL, "--json")
    assert 32 == json.loads(computed)["run"]["context"]
    assert "figures were published" in installed.run(tmp_path, "poskernel", "reproduce", MODEL)

    assert "Plotly.newPlot" in (tmp_path / "out.html").read_text(encoding="utf-8")
    assert {"out.html", "random.py"} == {file.name for file in tmp_path.iterdir()}


def test_the_package(installed, tmp_path):
    """Python finds it where it is installed; the store lies with the user's caches."""
    code = (
        "import json, poskernel_core as pk\n"
        "from poskernel_core.storage.store import default_directory\n"
        f"found = pk.show('kernel', '{MODEL}', head='L0H3', query=400)\n"
        "print(json.dumps([pk.__file__, str(default_directory()), found.values['kernel'].shape]))"
    )

    package, directory, shape = json.loads(installed.run(tmp_path, "python", "-c", code))

    assert installed.python.parents[1] in Path(package).parents
    assert [512] == shape
    assert installed.home in Path(directory).parents
    assert "poskernel" in Path(directory).parts
    assert (Path(directory) / "cache.db").is_file()
    assert not (Path(package).parents[1] / "cache").exists()
