"""Run a module of this package as a separate process; find files of installed packages."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module, given its full name."""
    # -P: do not import modules from the current directory
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment, with the package on ``PYTHONPATH``."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def installed_file(package: str, file: str) -> Path | None:
    """Return a file of an installed package, without importing it; None if there is none."""
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next(filter(Path.is_file, (Path(folder, file) for folder in folders)), None)
