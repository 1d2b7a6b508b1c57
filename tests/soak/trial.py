"""What the trials share: requests, the arrays of a store, what counts as failed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poskernel_core import Engine, Execution, Store
from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run

MODEL = "demo-gpt2"
BOUND = 300.0
"""Seconds after which a request counts as hanging, on a busy machine too."""


@dataclass(frozen=True)
class Options:
    seed: int
    kills: int
    windows: int
    damages: int
    minutes: float = 20


class Failed(Exception):
    """The trial found a fault."""


Trial = Callable[[Options, Path], str]
"""Works in an empty folder; returns what it found, in words."""


def need(holds: object, otherwise: str) -> None:
    """Fail the trial unless something holds."""
    if not holds:
        raise Failed(otherwise)


def etc(texts: int, model: str = MODEL, context: int = 512, **more: object) -> Request:
    """Return a request that needs a pass over a number of windows."""
    run = describe_run(model, windows=texts, context=context, **more)
    return Request(analysis="etc", run=run)


@contextlib.contextmanager
def engine_at(folder: Path) -> Iterator[Engine]:
    """Open a store with an engine of its own, and stop its worker at the end."""
    engine = Engine(Store(folder), Execution(device="cpu"))
    try:
        yield engine
    finally:
        engine.close()
        engine.store.close()


def arrays(store: Store) -> dict[str, np.ndarray]:
    """Return every array of a store by entry and name."""
    found = {}
    for key in sorted(store.keys()):
        entry = store.get(key)
        need(entry is not None, f"entry {key} is damaged")
        found |= {f"{key} {name}": array for name, array in entry[1].items()}
    return found


def equality(whole: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> str:
    """Say how many arrays are equal in every bit; fail unless all are."""
    equal = sum(name in other and _same(whole[name], other[name]) for name in whole)
    said = f"{equal} of {len(whole)} arrays equal"
    need(whole and equal == len(whole) == len(other), f"{said}, {len(other)} found")
    return said


def same_values(one: Result, other: Result) -> bool:
    """Tell whether two results hold the same numbers, in every bit."""
    names = one.values.keys() == other.values.keys()
    return names and all(_same(one.values[name], other.values[name]) for name in one.values)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    kind = (one.dtype, one.shape) == (other.dtype, other.shape)
    return kind and one.tobytes() == other.tobytes()


def workers(store: Path) -> list[int]:
    """Return the numbers of the worker processes on a store (Linux)."""
    found, wanted = [], [b"poskernel_core.engine.worker", str(store.resolve()).encode()]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if all(word in words for word in wanted):
                found.append(int(process.name))
    return found


def forget_workers(store: Path) -> None:
    """Fail unless every worker on a store ends by itself; end those that do not."""
    end = time.monotonic() + BOUND
    while (left := workers(store)) and time.monotonic() < end:
        time.sleep(0.2)
    for number in left:
        os.kill(number, signal.SIGKILL)
    need(not left, f"{len(left)} workers outlive the process that started them")
