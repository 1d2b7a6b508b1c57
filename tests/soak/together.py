"""Many at once: requests of every kind on a cold worker, and visitors with any address."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.reader import Lost, Reader
from bench.readers import memory_mb, percentile
from pages.shared.grid.measures import MEASURES
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.specs import Request
from poskernel_core.models.catalog import BUNDLED_MODELS
from tests.soak.trial import BOUND, Options, engine_at, etc, need
from tests.support.server import Server, command_line, serve
from tools.recorded import page_names

__all__ = ["AT_ONCE", "MODELS", "PAGES", "address", "ten_at_once", "tracebacks", "visited"]

MODELS = ("demo-gpt2", "demo-attn-2l", "demo-training")
AT_ONCE = 4
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


def ten_at_once(options: Options, folder: Path) -> str:
    """Five passes and five experiments on a cold worker, while the cores are busy."""
    failed = []
    for number in range(options.rounds):
        with _busy(), engine_at(folder / f"cache{number}") as engine:
            jobs = [engine.submit(request) for request in _ten()]
            for job in jobs:
                ended = job.wait(2 * BOUND)
                if not ended or job.error is not None:
                    failed.append(f"{job.request.question.name}: {job.error or job.note}"[:160])
    said = f"{10 * options.rounds - len(failed)} of {10 * options.rounds} answered"
    need(not failed, f"{said}; {'; '.join(failed[:3])}")
    return said


def _ten() -> list[Request]:
    passes = [etc(6, model, context=128) for model in MODELS]
    passes += [etc(6, context=128, seed=1), etc(6, context=128, start_token=False)]
    base = [etc(6, model, context=128).run for model in MODELS]
    asked = [("induction-scores", run, {"period": 24}) for run in base]
    asked += [("position-zero", base[0], {"length": 11})]
    asked += [("random-attention", base[1], {"samples": 200, "length": 24})]
    experiments = [Request(analysis=a, run=run, params=params) for a, run, params in asked]
    return [one for pair in zip(passes, experiments, strict=True) for one in pair]


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Two processes that burn the cores."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def visited(options: Options, folder: Path) -> str:
    """Visitors with random addresses: none is lost, and the server's log has no traceback."""
    cache, log = folder / "cache", folder / "server.log"
    command_line(cache, "precompute", MODELS[0], "--windows", "50")
    with serve(cache, log) as server:
        lost, seconds, memory = asyncio.run(_visits(server, options))
    tracebacks(log, cache / "worker.log")
    need(not lost, f"{len(lost)} of {options.visits} visits lost: {'; '.join(lost[:3])}")
    return (
        f"{options.visits} visits, none lost; a run of the script takes "
        f"{percentile(seconds, 50):.2f} s, 95 % within {percentile(seconds, 95):.2f} s; server "
        f"after each quarter: {', '.join(f'{each:.0f}' for each in memory)} MB"
    )


def tracebacks(*logs: Path) -> None:
    """Fail if a log has a traceback."""
    for place in logs:
        text = place.read_text("utf-8", "replace") if place.is_file() else ""
        found = text.count("Traceback")
        need(not found, f"{place.name} has {found} tracebacks, the last: {_last_of(text)}")


def _last_of(log: str) -> str:
    """Return the last traceback of a log in a line: where, and then what it was."""
    lines = log[max(0, log.rfind("Traceback")) :].splitlines()
    ends = next((at for at, line in enumerate(lines[1:], 1) if not line.startswith(" ")), -1)
    places = [line.strip() for line in lines[1:ends] if line.lstrip().startswith("File ")]
    return f"{'; '.join(places)}: {lines[ends]}" if lines else ""


async def _visits(server: Server, options: Options) -> tuple[list[str], list[float], list[float]]:
    lost: list[str] = []
    seconds: list[float] = []
    memory: list[float] = []
    turns, number = asyncio.Semaphore(AT_ONCE), 0

    async def visit(draw: random.Random) -> None:
        nonlocal number
        async with turns:
            where = address(draw)
            try:
                async with Reader(server.url, BOUND) as reader:
                    seconds.append(await reader.open(**where))
                    for _ in range(draw.randrange(4) if reader.heads else 0):
                        await reader.choose(draw.choice(reader.heads), shown=False)
            except (Lost, PosKernelError) as error:
                lost.append(f"{where}: {error}"[:200])
            number += 1
            if number % max(1, options.visits // 4) == 0:
                memory.append(memory_mb(server.pid))

    draws = (random.Random(f"{options.seed} {index}") for index in range(options.visits))
    await asyncio.gather(*map(visit, draws))
    return lost, seconds, memory


def address(draw: random.Random) -> dict[str, str]:
    """Return a random page and random parameters, some of them nonsense."""
    names = draw.sample(list(PARAMETERS), draw.randrange(5))
    chosen = {name: draw.choice(PARAMETERS[name]) for name in names}
    return {"page": draw.choice(PAGES), "windows": "50", **chosen}
