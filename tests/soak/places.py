"""A store in trouble: no space left, a directory that vanishes, damaged bytes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from poskernel_core import Engine
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.specs import Request
from tests.soak.trial import (
    BOUND,
    MODEL,
    Failed,
    Options,
    Skipped,
    engine_at,
    etc,
    need,
    same_values,
)
from tests.support.server import ROOT, environment

__all__ = ["damaged", "full_disk", "vanished"]

TEXTS, CONTEXT = 4, 256
Damage = Callable[[random.Random, Path], None]


def full_disk(options: Options, folder: Path) -> str:
    """A cache of 3 MB is full: one sentence; once there is space, the same engine goes on."""
    with _mounted(folder / "command", "3m") as place:
        _one_sentence(place)
    asked = etc(TEXTS, context=CONTEXT)
    with engine_at(folder / "whole") as engine:
        whole = engine.result(asked, BOUND)
    with _mounted(folder / "engine", "3m") as place, engine_at(place) as engine:
        refused = _ends(engine, asked)
        need(isinstance(refused, PosKernelError), f"a full disk ends as {refused!r}")
        need("space" in str(refused), f"a full disk is reported as {refused}")
        before = engine.worker_pid
        _mount(place, "remount,size=200m")
        after = _ends(engine, asked)
        need(after is None, f"with space again: {after!r}")
        need(same_values(whole, engine.cached(asked)), "with space again: other numbers")
        kept = "the same worker" if engine.worker_pid == before else "a new worker"
    return f"one sentence; then, with space again, {kept} answers"


def vanished(options: Options, folder: Path) -> str:
    """The cache directory is removed under a running engine, which goes on once it is back."""
    asked = [etc(TEXTS, context=CONTEXT, seed=seed) for seed in range(3)]
    place = folder / "cache"
    with engine_at(place) as engine:
        need(engine.result(asked[0], BOUND), "no first result")
        shutil.rmtree(place)
        without = _ends(engine, asked[1])
        need(without is None or isinstance(without, PosKernelError), f"it ends as {without!r}")
        place.mkdir(exist_ok=True)
        after = _ends(engine, asked[2])
        need(after is None, f"with the directory again: {after!r}")
        need(engine.cached(asked[2]), "with the directory again: nothing is kept")
    return f"{'answered' if without is None else 'one sentence'} without it, answered with it"


def damaged(options: Options, folder: Path) -> str:
    """Bytes changed and files cut, in entries and in the database: the numbers stay right."""
    draw, base = random.Random(options.seed), etc(TEXTS, context=CONTEXT)
    kernel = {"analysis": "kernel", "params": {"query": CONTEXT - 1}}
    asked = [
        base,
        *(base.model_copy(update=change) for change in (kernel, {"analysis": "profile"})),
    ]
    with engine_at(folder / "whole") as engine:
        truth = [engine.result(request, BOUND) for request in asked]
    ways, failed = list(WAYS), []
    for number in range(options.damages):
        way = ways[number % len(ways)]
        place = Path(shutil.copytree(folder / "whole", folder / f"damaged{number}"))
        WAYS[way](draw, place)
        try:
            with engine_at(place) as engine:
                results = [engine.result(request, BOUND) for request in asked]
            need(all(map(same_values, truth, results)), "other numbers")
        except Exception as error:
            failed.append(f"{way}: {error!r}"[:160])
    said = f"{options.damages - len(failed)} of {options.damages} stores answer rightly"
    need(not failed, f"{said}; {'; '.join(failed)}")
    return said


def _ends(engine: Engine, asked: Request) -> Exception | None:
    """Ask, and return the error that it ends with; None for a result."""
    try:
        job = engine.submit(asked)
    except PosKernelError as error:
        return error
    need(job.wait(BOUND), f"no end within {BOUND:g} s: {job.state}, {job.note!r}")
    return job.error


def _one_sentence(place: Path) -> None:
    arguments = ["show", "etc", MODEL, "--windows", str(TEXTS), "--context", str(CONTEXT)]
    process = subprocess.Popen(
        [sys.executable, "-m", "poskernel_core", *arguments], cwd=ROOT, env=environment(place),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"`show` on a full disk hangs for {BOUND:g} s") from error
    lines = said.strip().splitlines()
    need(process.returncode in (1, 2), f"`show` on a full disk exits with {process.returncode}")
    need(len(lines) == 1 and "space" in said, f"`show` on a full disk says {said[-300:]!r}")


@contextlib.contextmanager
def _mounted(place: Path, size: str) -> Iterator[Path]:
    """A file system of a few megabytes in memory, in its own directory."""
    place.mkdir(parents=True)
    try:
        _mount(place, f"size={size}")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped("a tmpfs cannot be mounted here: it takes root on Linux") from error
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _mount(place: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    subprocess.run(command, check=True, capture_output=True)


def _change(draw: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(8):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    file.write_bytes(data)


def _cut(draw: random.Random, file: Path) -> None:
    os.truncate(file, draw.randrange(file.stat().st_size))


def _entry(change: Callable[[random.Random, Path], None]) -> Damage:
    return lambda draw, place: change(draw, draw.choice(sorted(place.rglob("*.val"))))


def _database(change: Callable[[random.Random, Path], None]) -> Damage:
    return lambda draw, place: change(draw, place / "cache.db")


WAYS: dict[str, Damage] = {
    "an entry's bytes changed": _entry(_change),
    "the database's bytes changed": _database(_change),
    "an entry cut": _entry(_cut),
    "the database cut": _database(_cut),
    "an entry's file gone": _entry(lambda draw, file: file.unlink()),
    "the database's first page changed": _database(
        lambda draw, file: file.write_bytes(draw.randbytes(512) + file.read_bytes()[512:])
    ),
    "the database emptied": _database(lambda draw, file: os.truncate(file, 0)),
}
