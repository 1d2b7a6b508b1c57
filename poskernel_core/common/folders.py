"""The default directory for results and for models converted from other formats."""

import os
from pathlib import Path

import platformdirs

CHECKOUT = ("pyproject.toml", "serve.py")
"""Files next to the package in a checkout, but not in an installation."""


def default_directory() -> Path:
    """Return ``POSKERNEL_CACHE``, or ``cache/`` in a checkout, or the user's cache directory."""
    if named := os.environ.get("POSKERNEL_CACHE"):
        return Path(named)
    root = Path(__file__).resolve().parents[2]
    if all((root / each).is_file() for each in CHECKOUT):
        return root / "cache"
    return platformdirs.user_cache_path("poskernel", appauthor=False)
