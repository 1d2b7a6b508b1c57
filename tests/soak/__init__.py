"""Long trials for ``make soak``: pytest takes these files only where they are named.

The environment tells how long they are: ``SOAK_KILLS=5 make soak SOAK_ARGS='-k killed'``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from poskernel_core import Store
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from tests.conftest import opened_engine

SEED = int(os.environ.get("SOAK_SEED", "0"))
MODEL = "demo-gpt2"
BOUND = 300.0
"""Seconds after which a request counts as hanging, on a busy machine too."""

engine_at = contextlib.contextmanager(opened_engine)
"""An engine on the store in a folder; its worker is stopped at the end."""


def request(windows: int, analysis: str = "etc", model: str = MODEL, **more: object) -> Request:
    """Return a request that needs a pass over a number of windows."""
    return Request(analysis=analysis, run=describe_run(model, windows=windows, **more))


def bits(arrays: dict[str, np.ndarray]) -> dict[str, tuple[object, ...]]:
    """Return what two equal sets of arrays have in common: every bit, kinds and shapes."""
    known = {name: np.asarray(array) for name, array in arrays.items()}
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in known.items()}


def bits_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return the bits of every array of a store by entry and name."""
    found: dict[str, tuple[object, ...]] = {}
    with contextlib.closing(Store(folder)) as store:
        for key in sorted(store.keys()):
            entry = store.get(key)
            assert entry is not None, f"entry {key} is damaged"
            found |= bits({f"{key} {name}": array for name, array in entry[1].items()})
    return found


def workers(store: Path) -> list[int]:
    """Return the numbers of the worker processes on a store (Linux)."""
    found, wanted = [], [b"poskernel_core.engine.worker", str(store.resolve()).encode()]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if all(word in words for word in wanted):
                found.append(int(process.name))
    return found
