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

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np

from bench.reader import Lost, Reader
from bench.readers import memory_mb, percentile
from pages.shared.grid.measures import MEASURES
from poskernel_core import Engine, Store
from poskernel_core.models.curated import BUNDLED_MODELS
from tests.soak import BOUND, SEED, bits, engine_at, request, workers
from tests.support.server import command_line, serve
from tools.recorded import page_names

MINUTES = float(os.environ.get("SOAK_MINUTES", "20"))
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


def test_two_replicas(tmp_path):
    """Readers for minutes: none lost, no traceback, equal answers, memory that does not grow."""
    cache, truth = tmp_path / "shared", {}  # requests and the bits of right answers, by name
    with engine_at(tmp_path / "truth") as engine:
        for model, context, analysis in itertools.product(MODELS, CONTEXTS, ("etc", "profile")):
            asked = request(TEXTS, analysis, model, context=context)
            truth[f"{analysis} of {model}, {context}"] = asked, engine.result(asked, BOUND)
    command_line(cache, "precompute", MODELS[0], "--windows", str(TEXTS), "--context", "64")
    both = [Replica(number, cache, tmp_path / f"server{number}.log") for number in (1, 2)]
    with contextlib.ExitStack() as stack:
        for each in both:
            stack.callback(each.stop)
            each.start()
        store = stack.enter_context(contextlib.closing(Store(cache, CACHE_GB)))
        trial = Trial(both)
        asyncio.run(trial.all(Engine(store), truth))
    for log in (*(each.log for each in both), cache / "worker.log"):
        text = log.read_text("utf-8", "replace") if log.is_file() else ""
        assert "Traceback" not in text, text[text.rfind("Traceback") :][:5000]
    trial.check()


class Replica:
    """One of several servers on one store: started, killed, started again."""

    def __init__(self, number, cache, log):
        self.name, self.cache, self.log = f"replica {number}", cache, log
        self.lives, self.server, self._open = 0, None, contextlib.ExitStack()

    def start(self):
        settings = {"POSKERNEL_CACHE_GB": str(CACHE_GB)}
        self.server = self._open.enter_context(serve(self.cache, self.log, settings=settings))
        self.lives += 1

    def kill(self):
        """End it with -9, as when a machine fails."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.stop()

    def stop(self):
        """End it as a host does."""
        self.server = None
        self._open.close()

    def processes(self):
        """The numbers of its server and of its worker, as far as they run (Linux)."""
        if self.server is None:
            return {}
        found = {"server": self.server.pid}
        for number in workers(self.cache):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{number}/stat").read_text("ascii")
                if int(stat.rpartition(")")[2].split()[1]) == self.server.pid:
                    found["worker"] = number
        return found


class Trial:
    """What readers and killers do all the time, and what is seen of it."""

    def __init__(self, both):
        self.both, self.began, self.counts = both, time.monotonic(), Counter()
        self.seconds, self.lost, self.other, self.apart = [], [], [], 0.0
        self.memory = {}  # samples (second, MB) of each process
        self._turn = itertools.cycle(both)

    def _until(self, share):
        """Seconds until a share of the trial's time has passed."""
        return self.began + 60 * share * MINUTES - time.monotonic()

    async def all(self, engine, truth):
        killers = random.Random(SEED), random.Random(SEED + 1)
        others = [
            asyncio.create_task(each)
            for each in (
                self._kill_workers(killers[0]), self._kill_replica(killers[1], self.both[1]),
                self._meet_all(self.both[0]), self._sample(), self._look(engine, truth),
            )
        ]  # fmt: skip
        try:
            readers = (self._read(random.Random(f"{SEED} {index}")) for index in range(AT_ONCE))
            await asyncio.gather(*readers)
        finally:
            for each in others:
                each.cancel()
            ends = await asyncio.gather(*others, return_exceptions=True)
        for each in ends:
            if isinstance(each, Exception):
                raise each

    async def _read(self, draw):
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
                        self.counts["opened again at the other replica"] += 1
                        to = next(self._turn)
                        continue
                self.counts["visits"] += 1
                break

    async def _visit(self, draw, to, where):
        if to.server is None:
            raise Lost("it has just been killed")
        async with Reader(to.server.url, BOUND) as reader:
            self.seconds.append(await reader.open(**where))
            self.counts["waited for a computation"] += reader.waits
            await self._wait(draw, reader, min(self._until(1), draw.choice((2.0, MAX_SECONDS))))
            for _ in range(draw.randrange(5) if reader.heads else 0):
                await asyncio.sleep(draw.uniform(0, 1))
                self.seconds.append(await reader.choose(draw.choice(reader.heads), shown=False))

    async def _wait(self, draw, reader, seconds):
        """Wait while something is computed, as the page does by itself; cancel it now and then."""
        end = time.monotonic() + seconds
        while reader.waits and time.monotonic() < end:
            if draw and "Cancel" in reader.buttons and draw.random() < 0.1:
                await reader.press("Cancel")
                self.counts["cancelled"] += 1
                return
            await asyncio.sleep(PAUSE_SECONDS)
            await reader.again()

    async def _meet_all(self, replica):
        """Open every page at a replica once it is left alone, and wait for all that it computes.

        What is imported for one analysis alone is imported here, and not in the time in which
        memory is judged. Nobody else asks for windows of this length: an answer that the other
        replica has put into the store would not be computed here.
        """
        await asyncio.sleep(max(0.0, self._until(0.25)))
        where = {"model": MODELS[0], "context": str(CONTEXT_OF_ALL), "samples": "100"}
        for page in PAGES:
            try:
                async with Reader(replica.server.url, BOUND) as reader:
                    await reader.open(**where, windows=str(TEXTS), page=page)
                    await self._wait(None, reader, BOUND)
            except Lost as lost:
                self.lost.append(f"{replica.name} {page}: {lost}"[:300])
            self.counts["visits"] += 1

    async def _kill_workers(self, draw):
        while True:
            await asyncio.sleep(draw.uniform(*WORKER_KILLS))
            replica = draw.choice(self.both if self._until(0.25) > 0 else self.both[1:])
            running = await asyncio.to_thread(replica.processes)
            if "worker" in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running["worker"], signal.SIGKILL)
                    self.counts["kills of a worker"] += 1

    async def _kill_replica(self, draw, replica):
        while True:
            await asyncio.sleep(draw.uniform(*REPLICA_KILLS))
            replica.kill()
            self.counts["kills of a replica"] += 1
            await asyncio.sleep(2)
            await asyncio.to_thread(replica.start)

    async def _sample(self):
        """Note the memory of every process, all the time."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            for replica in self.both:
                for kind, number in (await asyncio.to_thread(replica.processes)).items():
                    with contextlib.suppress(OSError, StopIteration):
                        sample = time.monotonic() - self.began, memory_mb(number)
                        self.memory.setdefault(f"{kind} of {replica.name}", []).append(sample)

    async def _look(self, engine, truth):
        """Hold every answer that is stored against that of the undisturbed engine, all the time."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name, (asked, answer) in truth.items():
                other = await asyncio.to_thread(engine.cached, asked)
                if other is not None:
                    equal = bits(answer.values) == bits(other.values)
                    self.counts["answers compared"] += 1
                    self.counts["equal in every bit"] += equal
                    apart = 0.0 if equal else difference(answer.values, other.values)
                    self.apart = max(self.apart, apart)
                    if apart > ROUNDING:
                        self.other.append(f"{name}, by {apart:.1e} of the largest")

    def check(self):
        """Tell what was seen; fail where a visit was lost, an answer differs or memory grows."""
        watched = "server of replica 1", "worker of replica 1"
        late = {
            name: [each for each in self.memory.get(name, []) if each[0] >= 30 * MINUTES]
            for name in watched
        }
        rises = {name: rise(samples) for name, samples in late.items() if len(samples) > 2}
        print(f"\n{dict(self.counts)}; answers differ by {self.apart:.1e} of the largest number")
        print(*(f"{share} % of runs within {percentile(self.seconds, share):.2f} s, "
                for share in (50, 95)), "memory over the second half:", rises)  # fmt: skip
        assert not self.lost, f"{len(self.lost)} visits lost: {'; '.join(self.lost[:3])}"
        assert not self.other, f"other answers to equal questions: {'; '.join(self.other[:3])}"
        assert self.counts["answers compared"]
        assert MINUTES < SHORTEST or all(each < STEEPEST for each in rises.values()), "memory grows"


def address(draw):
    """An address: half of them sound, a part of these small experiments."""
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


def difference(ours, theirs):
    """The largest difference, as a share of the largest number of its array."""
    largest = {name: np.nanmax(np.abs(array)) for name, array in ours.items()}
    return max(
        float(np.nanmax(np.abs(array - theirs[name])) / largest[name])
        for name, array in ours.items()
        if largest[name] > 0
    )


def rise(samples):
    """How far a line through samples ``(time, size)`` rises, as a share of their mean."""
    times, sizes = np.array(samples).T
    slope = np.polyfit(times - times[0], sizes, 1)[0]
    return float(slope * (times[-1] - times[0]) / sizes.mean())
