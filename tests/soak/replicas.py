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
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

from bench.reader import Lost, Reader
from bench.readers import memory_mb, percentile
from pages.shared.grid.measures import MEASURES
from poskernel_core import Engine, Store
from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.models.curated import BUNDLED_MODELS
from tests.soak.trial import BOUND, Options, engine_at, need, same_values, workers
from tests.support.server import Server, command_line, serve
from tools.recorded import page_names

MODELS = ("demo-gpt2", "demo-attn-2l", "demo-training")
PAGES = ("", *page_names(), "no_such_page")
PARAMETERS = {
    "model": (*BUNDLED_MODELS, "no-such-model", "../../etc/passwd", "<script>"),
    "corpus": ("sample", "bible", "nothing", "%00"),
    "head": ("L0H0", "L1H3", "L2H6", "L99H99", "x", "L²H1", "L-1H0"),
    "query": ("0", "1", "100", "400", "-5", "1e9", "nan", "٤"),
    "skip": ("0", "4", "8", "-1", "999", "x"),
    "context": ("64", "128", "512", "7", "1e9"),
    "start": ("true", "false", "perhaps"),
    "measure": (*MEASURES, "no such measure"),
    "order": ("number", "ETC", "?"),
    "k": ("1", "3", "1000000", "-1"),
    "hl": ("0", "2", "77"),
    "neuron": ("0", "648", "99999999"),
}
WORDS = ("blue", "fire", "water", "house", "king", "garden", "the", "server", "table", "of")

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
WORKER_KILLS = (15.0, 45.0)
REPLICA_KILLS = (90.0, 150.0)
ROUNDING = 1e-4
"""Difference up to which answers count as equal, as a share of the largest number of an array.

Where a part of the statistics was dropped, a pass gathers that part alone. Without the patterns
the sums of attention are formed in another order, and the last bits differ.
"""

SHORTEST = 10.0
"""Minutes below which memory is told, and not judged: what is loaded first still shows."""

STEEPEST = 0.1
"""Rise over the second half of a trial, as a share of the mean, up to which memory is flat."""

Memory = dict[str, list[tuple[float, float]]]
"""Samples ``(second, MB)`` of each process."""


def replicas(options: Options, folder: Path) -> str:
    """Readers of two replicas for minutes: none lost, no traceback, equal answers, memory."""
    cache = folder / "cache"
    truth = {}  # requests and their right answers, by name
    with engine_at(folder / "truth") as engine:
        for model, context, analysis in product(MODELS, CONTEXTS, ("etc", "profile")):
            run = describe_run(model, windows=TEXTS, context=context)
            request, name = Request(analysis=analysis, run=run), f"{analysis} of {model}, {context}"
            truth[name] = request, engine.result(request, BOUND)
            need(truth[name][1], f"no undisturbed answer: {name}")
    command_line(cache, "precompute", MODELS[0], "--windows", str(TEXTS), "--context", "64")
    both = [Replica(number, cache, folder / f"server{number}.log") for number in (1, 2)]
    with contextlib.ExitStack() as stack:
        for each in both:
            stack.callback(each.stop)
            each.start()
        store = Store(cache, CACHE_GB)
        stack.callback(store.close)
        trial = _Trial(options, both)
        asyncio.run(trial.all(Engine(store), truth))
    tracebacks(*(each.log for each in both), cache / "worker.log")
    return trial.verdict()


class Replica:
    """One of several servers on one store: started, killed, started again."""

    def __init__(self, number: int, cache: Path, log: Path) -> None:
        self.name, self.cache, self.log = f"replica {number}", cache, log
        self.lives = 0
        self.server: Server | None = None
        self._open = contextlib.ExitStack()

    def start(self) -> None:
        """Start it, at a port of its own."""
        settings = {"POSKERNEL_CACHE_GB": str(CACHE_GB)}
        self.server = self._open.enter_context(serve(self.cache, self.log, settings=settings))
        self.lives += 1

    def kill(self) -> None:
        """End it with -9, as when a machine fails."""
        if self.server is not None:
            os.kill(self.server.pid, signal.SIGKILL)
            self.stop()

    def stop(self) -> None:
        """End it as a host does."""
        self.server = None
        self._open.close()

    def processes(self) -> dict[str, int]:
        """Return the numbers of its server and of its worker, as far as they run (Linux)."""
        if self.server is None:
            return {}
        found = {"server": self.server.pid}
        for number in workers(self.cache):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{number}/stat").read_text("ascii")
                if int(stat.rpartition(")")[2].split()[1]) == self.server.pid:
                    found["worker"] = number
        return found


class _Trial:
    """What readers and killers do all the time, and what is found."""

    def __init__(self, options: Options, both: list[Replica]) -> None:
        self.options, self.both, self.began = options, both, time.monotonic()
        self.visits = self.cancelled = self.waited = self.moved = self.compared = self.equal = 0
        self.apart = 0.0
        self.lost: list[str] = []
        self.other: list[str] = []
        self.killed: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.memory: Memory = {}
        self._turn = self._turns()

    def _turns(self) -> Iterator[Replica]:
        """Yield the replicas that run, one after the other, without end."""
        while True:
            for each in self.both:
                if each.server is not None:
                    yield each

    def _until(self, share: float) -> float:
        """Return the seconds that are left of a share of the trial."""
        return self.began + 60 * share * self.options.minutes - time.monotonic()

    async def all(self, engine: Engine, truth: dict[str, tuple[Request, Result]]) -> None:
        self.began, seed = time.monotonic(), self.options.seed
        others = [
            asyncio.create_task(each)
            for each in (
                self._kill_workers(random.Random(seed)),
                self._kill_replica(random.Random(seed + 1), self.both[1]),
                self._meet_all(self.both[0]),
                self._sample(),
                self._look(engine, truth),
            )
        ]
        try:
            readers = (self._read(random.Random(f"{seed} {index}")) for index in range(AT_ONCE))
            await asyncio.gather(*readers)
        finally:
            for each in others:
                each.cancel()
            ends = await asyncio.gather(*others, return_exceptions=True)
        for each in ends:
            if isinstance(each, Exception):
                raise each

    async def _read(self, draw: random.Random) -> None:
        while self._until(1) > 0:
            where, to = address(draw), next(self._turn)
            for _ in range(9):
                life = to.lives
                try:
                    await self._visit(draw, to, where)
                except Lost as lost:
                    if to.server is not None and to.lives == life:
                        self.lost.append(f"{to.name} {where}: {lost}"[:300])
                    else:
                        self.moved += 1
                        to = next(self._turn)
                        continue
                self.visits += 1
                break

    async def _visit(self, draw: random.Random, to: Replica, where: dict[str, str]) -> None:
        if to.server is None:
            raise Lost("it has just been killed")
        async with Reader(to.server.url, BOUND) as reader:
            self.seconds.append(await reader.open(**where))
            await self._wait(draw, reader)
            for _ in range(draw.randrange(5) if reader.heads else 0):
                await asyncio.sleep(draw.uniform(0, 1))
                self.seconds.append(await reader.choose(draw.choice(reader.heads), shown=False))

    async def _wait(self, draw: random.Random, reader: Reader) -> None:
        """Wait while something is computed, as the page does by itself; cancel it now and then."""
        self.waited += reader.waits
        patience = time.monotonic() + min(self._until(1), draw.choice((2.0, MAX_SECONDS)))
        while reader.waits and time.monotonic() < patience:
            if "Cancel" in reader.buttons and draw.random() < 0.1:
                await reader.press("Cancel")
                self.cancelled += 1
                return
            await asyncio.sleep(PAUSE_SECONDS)
            await reader.again()

    async def _meet_all(self, replica: Replica) -> None:
        """Open every page at a replica once it is left alone, and wait for all that it computes.

        What is imported for one analysis alone is imported here, and not in the time in which
        memory is judged. Nobody else asks for windows of this length: an answer that the other
        replica has put into the store would not be computed here.
        """
        await asyncio.sleep(max(0.0, self._until(0.25)))
        where = {"model": MODELS[0], "context": str(CONTEXT_OF_ALL), "samples": "100"}
        for page in PAGES:
            assert replica.server is not None
            try:
                async with Reader(replica.server.url, BOUND) as reader:
                    await reader.open(**where, windows=str(TEXTS), page=page)
                    patience = time.monotonic() + BOUND
                    while reader.waits and time.monotonic() < patience:
                        await asyncio.sleep(PAUSE_SECONDS)
                        await reader.again()
            except Lost as lost:
                self.lost.append(f"{replica.name} {page}: {lost}"[:300])
            self.visits += 1

    async def _kill_workers(self, draw: random.Random) -> None:
        while True:
            await asyncio.sleep(draw.uniform(*WORKER_KILLS))
            replica = draw.choice(self.both if self._until(0.25) > 0 else self.both[1:])
            found = await asyncio.to_thread(replica.processes)
            if "worker" in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found["worker"], signal.SIGKILL)
                    self.killed["worker"] += 1

    async def _kill_replica(self, draw: random.Random, replica: Replica) -> None:
        while True:
            await asyncio.sleep(draw.uniform(*REPLICA_KILLS))
            replica.kill()
            self.killed["replica"] += 1
            await asyncio.sleep(2)
            await asyncio.to_thread(replica.start)

    async def _sample(self) -> None:
        """Note the memory of every process, all the time."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            for replica in self.both:
                for what, number in (await asyncio.to_thread(replica.processes)).items():
                    with contextlib.suppress(OSError, StopIteration):
                        sample = time.monotonic() - self.began, memory_mb(number)
                        self.memory.setdefault(f"{what} of {replica.name}", []).append(sample)

    async def _look(self, engine: Engine, truth: dict[str, tuple[Request, Result]]) -> None:
        """Hold every answer that is stored against that of the undisturbed engine, all the time."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name, (request, answer) in truth.items():
                other = await asyncio.to_thread(engine.cached, request)
                if other is not None:
                    self.compared += 1
                    equal = same_values(answer, other)
                    self.equal += equal
                    apart = 0.0 if equal else _apart(answer, other)
                    self.apart = max(self.apart, apart)
                    if apart > ROUNDING:
                        self.other.append(f"{name}, by {apart:.1e} of the largest")

    def verdict(self) -> str:
        """Say what was found; fail where a visit was lost, an answer differs or memory grows."""
        minutes = self.options.minutes
        need(not self.lost, f"{len(self.lost)} visits lost: {'; '.join(self.lost[:3])}")
        need(not self.other, f"other answers to equal questions: {'; '.join(self.other[:3])}")
        need(self.compared, "no answer was compared")
        watched = "server of replica 1", "worker of replica 1"
        said, steep = verdicts(self.memory, watched, minutes * 60)
        need(minutes < SHORTEST or not steep, f"memory grows: {said}")
        kills = ", ".join(f"{number} of a {what}" for what, number in sorted(self.killed.items()))
        return (
            f"{self.visits} visits in {minutes:g} minutes, none lost but to a killed replica "
            f"({self.moved} opened again at the other); kills: {kills or 'none'}; "
            f"{self.waited} waited for a computation, {self.cancelled} cancelled one; "
            f"{self.compared} answers compared, {self.equal} equal in every bit, the others within "
            f"{self.apart:.1e} of the largest number; a run of the script takes "
            f"{percentile(self.seconds, 50):.2f} s, 95 % within "
            f"{percentile(self.seconds, 95):.2f} s; memory over the second half: {said}"
        )


def address(draw: random.Random) -> dict[str, str]:
    """Return an address: half of them sound, a part of these small experiments."""
    base = {"windows": str(TEXTS), "context": str(draw.choice(CONTEXTS))}
    if draw.random() < 0.4:
        names = draw.sample(list(PARAMETERS), draw.randrange(5))
        wild = {name: draw.choice(PARAMETERS[name]) for name in names}
        return wild | base | {"page": draw.choice(PAGES)}
    own = " ".join(draw.choices(WORDS, k=draw.randrange(3, 20)))
    few = {"samples": "100", "seed": str(draw.randrange(9))}
    pages = {
        "": {}, "previous_token": {}, "interventions": {}, "own_text": {"text": own},
        "induction_recency": few, "position_vs_token": few,
    }  # fmt: skip
    page = draw.choice(["", *pages])
    return base | {"model": draw.choice(MODELS), "page": page} | pages[page]


def _apart(one: Result, other: Result) -> float:
    """Return the largest difference, as a share of the largest number of its array."""
    shares = [
        np.nanmax(np.abs(array - other.values[name])) / np.nanmax(np.abs(array))
        for name, array in one.values.items()
        if np.nanmax(np.abs(array)) > 0
    ]
    return float(max(shares))


def tracebacks(*logs: Path) -> None:
    """Fail if a log has a traceback."""
    for place in logs:
        text = place.read_text("utf-8", "replace") if place.is_file() else ""
        found = text.count("Traceback")
        need(not found, f"{place.name} has {found} tracebacks, the last: {_last_of(text)}")


def _last_of(log: str) -> str:
    """Return the last traceback of a log in a line: where, and then what it was."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", log)  # streamlit's are coloured
    lines = plain[max(0, plain.rfind("Traceback")) :].splitlines()
    ends = next((at for at, line in enumerate(lines[1:], 1) if not line.startswith(" ")), -1)
    places = [line.strip() for line in lines[1:ends] if re.search(r"\.py\b", line)]
    return f"{'; '.join(places)}: {lines[ends]}" if lines else ""


def rise(samples: list[tuple[float, float]]) -> float:
    """Return how far a line through samples ``(time, size)`` rises, as a share of their mean."""
    times, sizes = np.array(samples).T
    slope = np.polyfit(times - times[0], sizes, 1)[0]
    return float(slope * (times[-1] - times[0]) / sizes.mean())


def verdicts(memory: Memory, names: Iterable[str], seconds: float) -> tuple[str, bool]:
    """Say of each process named whether its memory is flat; tell whether that of any is not."""
    said, steep = [], False
    for name in names:
        late = [each for each in memory.get(name, []) if each[0] >= seconds / 2]
        if len(late) < 3:
            said.append(f"{name} not seen")
            continue
        share, mean = rise(late), np.mean([size for _, size in late])
        steep = steep or share >= STEEPEST
        word = "flat" if share < STEEPEST else "GROWS"
        said.append(f"{name} {word} ({share:+.1%} of {mean:.0f} MB)")
    return ", ".join(said), steep
