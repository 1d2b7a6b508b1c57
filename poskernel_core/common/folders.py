"""The default directory for results and for models converted from other formats."""

import os
import sys
import tempfile
from pathlib import Path

import platformdirs

CHECKOUT = ("pyproject.toml", "serve.py")
"""Files next to the package in a checkout, but not in an installation."""


def default_directory() -> Path:
    """Return ``POSKERNEL_CACHE``, or ``cache/`` in a checkout, or the user's cache directory.

    If that holds no results and cannot be written, or the user has no home, a temporary folder is
    made and becomes ``POSKERNEL_CACHE``; other libraries then find it as ``HOME`` too.
    """
    if os.path.expanduser("~") == "~":
        os.environ["HOME"] = os.path.abspath(os.environ.get("POSKERNEL_CACHE") or _temporary())
    if named := os.environ.get("POSKERNEL_CACHE"):
        return Path(named)
    root = Path(__file__).resolve().parents[2]
    usual = root / "cache"
    if not all((root / name).is_file() for name in CHECKOUT):
        usual = platformdirs.user_cache_path("poskernel", appauthor=False)
    there = next(folder for folder in (usual, *usual.parents) if folder.exists())
    usable = (usual / "cache.db").exists() or os.access(there, os.W_OK)
    return usual if usable else Path(_temporary())


def _temporary() -> str:
    made = os.environ["POSKERNEL_CACHE"] = tempfile.mkdtemp(prefix="poskernel-")
    message = f"Results are kept in {made}, a temporary folder: set POSKERNEL_CACHE to keep them."
    print(message, file=sys.stderr)
    return made
