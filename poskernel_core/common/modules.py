"""How a module of this package is run as a process of its own, from wherever the package lies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["command", "environment"]

ROOT = Path(__file__).resolve().parents[2]


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module, which is given by its whole name."""
    # -P: no file of the folder that the command is run in is taken for a module
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment, in which the package is found."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
