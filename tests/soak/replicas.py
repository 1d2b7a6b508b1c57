"""Two servers on one store that is too small, with workers and a whole replica killed all the time.

Readers come one after another, each to the replica whose turn it is, and stay on it as behind a
proxy with sticky sessions; one whose replica was killed opens its page again at the other. They
open random addresses and small experiments, choose heads, wait for what is computed, cancel some
of it, or leave. Workers are killed with -9, and so is the second replica, which is started again.
From a quarter of the time on the first replica and its worker are left alone. In the second quarter
a reader opens every page there once, since some load a library at first; memory is watched in the
half that is left: it counts as flat where a line through its samples rises by less than a tenth of
their mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from bench.reader import Lost, Reader
from bench.readers import percentile
from poskernel_core import Engine, Store
from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from tests.soak.memory import verdicts
from tests.soak.replica import Replica, memory_of
from tests.soak.trial import BOUND, Options, engine_at, need, same_values
from tests.soak.visits import MODELS, PAGES, address, tracebacks
from tests.support.server import command_line

CACHE_GB = 0.012
"""Holds the statistics of two or three runs."""

TEXTS, CONTEXTS, CONTEXT_OF_ALL = 50, (64, 128), 256
"""Windows and their lengths; the last is for the reader who opens every page, and nobody else."""

AT_ONCE = 4
PAUSE_SECONDS = 1.0
MAX_SECONDS = 60.0
"""That a reader waits for a computation before leaving."""

LOOK_SECONDS = 5.0
SAMPLE_SECONDS = 1.0
ROW_SECONDS = 120.0
WORKER_KILLS = (15.0, 45.0)
REPLICA_KILLS = (90.0, 150.0)
WORDS = ("blue", "fire", "water", "house", "king", "garden", "the", "server", "table", "of")
ROUNDING = 1e-4
"""Difference up to which answers count as equal, as a share of the largest number of an array.

Where a part of the statistics was dropped, a pass gathers that part alone. Without the patterns
the sums of attention are formed in another order, and the last bits differ.
"""

SHORTEST = 10.0
"""Minutes below which memory is told, and not judged: what is loaded first still shows."""

Truth = dict[str, tuple[Request, Result]]
"""Requests and their right answers, by name."""


@dataclass
class _Found:
    visits: int = 0
    cancelled: int = 0
    waited: int = 0
    moved: int = 0
    lost: list[str] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    equal: int = 0
    apart: float = 0.0
    other: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)


def replicas(options: Options, folder: Path) -> str:
    """Readers of two replicas for minutes: none lost, no traceback, equal answers, memory."""
    cache = folder / "cache"
    truth = _truth(folder / "truth")
    command_line(cache, "precompute", MODELS[0], "--windows", str(TEXTS), "--context", "64")
    both = [
        Replica(f"replica {number}", cache, folder / f"server{number}.log", CACHE_GB)
        for number in (1, 2)
    ]
    found = _Found()
    with contextlib.ExitStack() as stack:
        for each in both:
            stack.callback(each.stop)
            each.start()
        store = Store(cache, CACHE_GB)
        stack.callback(store.close)
        asyncio.run(_all(options, both, truth, store, found))
    tracebacks(*(each.log for each in both), cache / "worker.log")
    need(not found.lost, f"{len(found.lost)} visits lost: {'; '.join(found.lost[:3])}")
    need(not found.other, f"other answers to equal questions: {'; '.join(found.other[:3])}")
    need(found.compared, "no answer was compared")
    said, steep = verdicts(
        found.memory, ("server of replica 1", "worker of replica 1"), options.minutes * 60
    )
    need(options.minutes < SHORTEST or not steep, f"memory grows: {said}")
    kills = ", ".join(f"{number} of a {what}" for what, number in sorted(found.killed.items()))
    return (
        f"{found.visits} visits in {options.minutes:g} minutes, none lost but to a killed replica "
        f"({found.moved} opened again at the other); kills: {kills or 'none'}; "
        f"{found.waited} waited for a computation, {found.cancelled} cancelled one; "
        f"{found.compared} answers compared, {found.equal} equal in every bit, the others within "
        f"{found.apart:.1e} of the largest number; a run of the script takes "
        f"{percentile(found.seconds, 50):.2f} s, 95 % within "
        f"{percentile(found.seconds, 95):.2f} s; memory over the second half: {said}"
    )


def _truth(folder: Path) -> Truth:
    """Return what pages ask at the addresses of this trial, answered by an undisturbed engine."""
    found = {}
    with engine_at(folder) as engine:
        for model, context, analysis in product(MODELS, CONTEXTS, ("etc", "profile")):
            run = describe_run(model, windows=TEXTS, context=context)
            request, name = Request(analysis=analysis, run=run), f"{analysis} of {model}, {context}"
            answer = engine.result(request, BOUND)
            need(answer, f"no undisturbed answer: {name}")
            found[name] = (request, answer)
    return found


async def _all(
    options: Options, both: list[Replica], truth: Truth, store: Store, found: _Found
) -> None:
    draw, began = random.Random(options.seed), time.monotonic()
    end = began + 60 * options.minutes
    quarter = began + 15 * options.minutes
    turn = _turns(both)
    readers = [
        _read(random.Random(f"{options.seed} {index}"), turn, end, found)
        for index in range(AT_ONCE)
    ]
    others = [
        asyncio.create_task(_kill_workers(draw, both, quarter, found)),
        asyncio.create_task(_kill_replica(draw, both[1], found)),
        asyncio.create_task(_meet_all(both[0], quarter, found)),
        asyncio.create_task(_sample(both, began, found)),
        asyncio.create_task(_look(truth, store, began, found)),
    ]
    try:
        await asyncio.gather(*readers)
    finally:
        for each in others:
            each.cancel()
        ends = await asyncio.gather(*others, return_exceptions=True)
    for each in ends:
        if isinstance(each, Exception):
            raise each


def _turns(both: list[Replica]) -> Iterator[Replica]:
    """Return the replicas that run, one after the other, without end."""
    while True:
        for each in both:
            if each.server is not None:
                yield each


async def _read(draw: random.Random, turn: Iterator[Replica], end: float, found: _Found) -> None:
    while time.monotonic() < end:
        where, to = _where(draw), next(turn)
        for _ in range(9):
            life = to.lives
            try:
                await _visit(draw, to, where, end, found)
            except Lost as lost:
                if to.server is not None and to.lives == life:
                    found.lost.append(f"{to.name} {where}: {lost}"[:300])
                else:
                    found.moved += 1
                    to = next(turn)
                    continue
            found.visits += 1
            break


def _where(draw: random.Random) -> dict[str, str]:
    """Return an address: half of them sound, a part of these small experiments."""
    if draw.random() < 0.4:
        return address(draw) | {"context": str(draw.choice(CONTEXTS))}
    base = {
        "model": draw.choice(MODELS), "windows": str(TEXTS), "context": str(draw.choice(CONTEXTS)),
    }  # fmt: skip
    own = " ".join(draw.choices(WORDS, k=draw.randrange(3, 20)))
    more = draw.choice(
        [
            *2 * [{"page": ""}],
            {"page": "previous_token"},
            {"page": "own_text", "text": own},
            {"page": "induction_recency", "samples": "100", "seed": str(draw.randrange(9))},
            {"page": "position_vs_token", "samples": "100", "seed": str(draw.randrange(9))},
            {"page": "interventions"},
        ]
    )
    return base | more


async def _visit(
    draw: random.Random, to: Replica, where: dict[str, str], end: float, found: _Found
) -> None:
    if to.server is None:
        raise Lost("it has just been killed")
    async with Reader(to.server.url, BOUND) as reader:
        found.seconds.append(await reader.open(**where))
        await _wait(draw, reader, end, found)
        for _ in range(draw.randrange(5) if reader.heads else 0):
            await asyncio.sleep(draw.uniform(0, 1))
            found.seconds.append(await reader.choose(draw.choice(reader.heads), shown=False))


async def _meet_all(replica: Replica, quarter: float, found: _Found) -> None:
    """Open every page at a replica once it is left alone, and wait for all that it computes.

    What is imported for one analysis alone is imported here, and not in the time in which memory is
    judged. Nobody else asks for windows of this length: an answer that the other replica has put
    into the store would not be computed here.
    """
    await asyncio.sleep(max(0.0, quarter - time.monotonic()))
    where = {
        "model": MODELS[0], "windows": str(TEXTS), "context": str(CONTEXT_OF_ALL), "samples": "100",
    }  # fmt: skip
    for page in PAGES:
        assert replica.server is not None
        try:
            async with Reader(replica.server.url, BOUND) as reader:
                await reader.open(**where, page=page)
                patience = time.monotonic() + BOUND
                while reader.waits and time.monotonic() < patience:
                    await asyncio.sleep(PAUSE_SECONDS)
                    await reader.again()
        except Lost as lost:
            found.lost.append(f"{replica.name} {page}: {lost}"[:300])
        found.visits += 1


async def _wait(draw: random.Random, reader: Reader, end: float, found: _Found) -> None:
    """Wait while something is computed, as the page does by itself; cancel it now and then."""
    found.waited += reader.waits
    patience = min(end, time.monotonic() + draw.choice((2.0, MAX_SECONDS)))
    while reader.waits and time.monotonic() < patience:
        if "Cancel" in reader.buttons and draw.random() < 0.1:
            await reader.press("Cancel")
            found.cancelled += 1
            return
        await asyncio.sleep(PAUSE_SECONDS)
        await reader.again()


async def _kill_workers(
    draw: random.Random, both: list[Replica], quarter: float, found: _Found
) -> None:
    while True:
        await asyncio.sleep(draw.uniform(*WORKER_KILLS))
        replica = draw.choice(both if time.monotonic() < quarter else both[1:])
        number = await asyncio.to_thread(replica.worker)
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
                found.killed["worker"] += 1


async def _kill_replica(draw: random.Random, replica: Replica, found: _Found) -> None:
    while True:
        await asyncio.sleep(draw.uniform(*REPLICA_KILLS))
        replica.kill()
        found.killed["replica"] += 1
        await asyncio.sleep(2)
        await asyncio.to_thread(replica.start)


async def _sample(both: list[Replica], began: float, found: _Found) -> None:
    """Note the memory of every process, all the time."""
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        now = time.monotonic() - began
        found.now = await asyncio.to_thread(memory_of, both)
        for name, size in found.now.items():
            found.memory.setdefault(name, []).append((now, size))


async def _look(truth: Truth, store: Store, began: float, found: _Found) -> None:
    """Compare what is stored with the truth, all the time; print rows of memory."""
    engine, row = Engine(store), 0.0
    print("\n| minute | server 1 (MB) | worker 1 | server 2 | worker 2 | store | visits | kills |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = time.monotonic() - began
        await asyncio.to_thread(_compare, engine, truth, found)
        if now >= row:
            row += ROW_SECONDS
            names = ("server of replica 1", "worker of replica 1", "server of replica 2",
                     "worker of replica 2")  # fmt: skip
            sizes = " | ".join(
                f"{found.now[name]:.0f}" if name in found.now else "" for name in names
            )
            held = sum(store.keys().values()) / 1e6
            print(
                f"| {now / 60:.1f} | {sizes} | {held:.0f} | {found.visits} "
                f"| {found.killed.total()} |",
                flush=True,
            )


def _compare(engine: Engine, truth: Truth, found: _Found) -> None:
    """Hold every answer that is stored now against that of the undisturbed engine."""
    for name, (request, answer) in truth.items():
        other = engine.cached(request)
        if other is not None:
            found.compared += 1
            if same_values(answer, other):
                found.equal += 1
                continue
            apart = _apart(answer, other)
            found.apart = max(found.apart, apart)
            if apart > ROUNDING:
                found.other.append(f"{name}, by {apart:.1e} of the largest")


def _apart(one: Result, other: Result) -> float:
    """Return the largest difference, as a share of the largest number of its array."""
    shares = [
        np.nanmax(np.abs(array - other.values[name])) / np.nanmax(np.abs(array))
        for name, array in one.values.items()
        if np.nanmax(np.abs(array)) > 0
    ]
    return float(max(shares))
