"""``python -m bench.readers``: load test with many clients that choose a head every few seconds.

A server is started that shows the stored results of demo-gpt2. Each client is a separate web
socket, which loads the landing page and then chooses heads, with pauses. A click takes until the
script has run and everything has arrived. Clients and servers share the machine. With
``--replicas 2`` the clients are spread over two servers with one store. Memory and processor time
are those of the servers' processes. With ``--programs 200`` programs ask for so many stored heads a
second meanwhile, and another line says how many they got.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import numpy as np
import psutil

from bench.reader import Lost, Reader
from tests.support.server import Server, command_line, serve

TEXTS = 50
PROGRAMS = 4
"""Programs that ask at the same time."""


@dataclass
class Visit:
    """Measurements of one client: seconds to open the page, and seconds of every click."""

    opened: float = 0.0
    clicks: list[float] = field(default_factory=list)
    lost: str = ""


def main() -> None:
    """Measure each number of clients and print the table."""
    parser = argparse.ArgumentParser(prog="bench.readers", description=__doc__)
    parser.add_argument("--readers", default="5,10,20,40,80", help="how many at once, in turn")
    parser.add_argument("--replicas", type=int, default=1, help="servers that share the readers")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two clicks")
    parser.add_argument("--clicks", type=int, default=10, help="clicks of every reader")
    parser.add_argument("--programs", type=int, default=0, help="stored heads a second for them")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    numbers = [int(number) for number in options.readers.split(",")]
    print(
        f"Landing page of demo-gpt2 ({TEXTS} windows, everything stored), "
        f"{options.replicas} server(s), {options.clicks} clicks each, {options.pause:g} s between "
        f"two; {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        command_line(cache, "precompute", "demo-gpt2", "--windows", str(TEXTS))
        with ExitStack() as stack:
            logs = [Path(folder) / f"server{number}.log" for number in range(options.replicas)]
            servers = [stack.enter_context(serve(cache, log)) for log in logs]
            for server in servers:
                asyncio.run(_warm(server))
            print_header()
            for number in numbers:
                spent = cpu_seconds(servers)
                meanwhile = Programs(servers[0].url, options.programs)
                visits = asyncio.run(
                    crowd(servers, number, options.clicks, options.pause, options.seed, meanwhile)
                )
                print_row(number, visits, servers, cpu_seconds(servers) - spent)
                meanwhile.print()


async def _warm(server: Server) -> None:
    """Open the page once, so that the server has imported the pages."""
    async with Reader(server.url) as reader:
        await reader.open(windows=TEXTS)


@dataclass
class Programs:
    """Programs that ask a server for stored heads, so many a second, and the seconds of each."""

    url: str
    rate: int
    seconds: list[float] = field(default_factory=list)
    lasted: float = 0.0

    async def ask(self) -> None:
        """Ask until this is cancelled."""
        began = time.monotonic()
        try:
            async with httpx2.AsyncClient(base_url=f"{self.url}/api/v1/") as http:
                await asyncio.gather(*(self._ask(http, number) for number in range(PROGRAMS)))
        finally:
            self.lasted = time.monotonic() - began

    async def _ask(self, http: httpx2.AsyncClient, number: int) -> None:
        began = time.monotonic()
        for turn in count():
            head = f"L{turn % 4}H{turn // 4 % 8}"
            body = {
                "question": "etc",
                "model": "demo-gpt2",
                "head": head,
                "query": 40 * number + 39,
            }
            asked = time.monotonic()
            (await http.post("answers", json=body | {"run": {"windows": TEXTS}})).raise_for_status()
            self.seconds.append(time.monotonic() - asked)
            due = began + (turn + 1) * PROGRAMS / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def print(self) -> None:
        """Print how many heads the programs got, if they asked."""
        if self.rate:
            got, late = len(self.seconds) / self.lasted, percentile(self.seconds, 95)
            print(
                f"  programs: {got:.0f} of {self.rate} stored heads a second, median "
                f"{1000 * percentile(self.seconds, 50):.0f} ms, 95 % within {1000 * late:.0f} ms"
            )


async def crowd(
    servers: Sequence[Server],
    number: int,
    clicks: int,
    pause: float,
    seed: int,
    others: Programs | None = None,
) -> list[Visit]:
    """Let all clients open the page at once, and then choose heads at random times."""
    async with AsyncExitStack() as stack:
        if others is not None and others.rate:
            task = asyncio.create_task(others.ask())
            stack.callback(task.cancel)
        urls = [servers[index % len(servers)].url for index in range(number)]
        readers = [await stack.enter_async_context(Reader(url)) for url in urls]
        visits = [Visit() for _ in readers]
        await asyncio.gather(*map(_open, readers, visits))
        draws = [random.Random(f"{seed} {index}") for index in range(number)]
        each = zip(readers, visits, draws, strict=True)
        await asyncio.gather(*(_click(*one, clicks, pause) for one in each))
    return visits


async def _open(reader: Reader, visit: Visit) -> None:
    try:
        visit.opened = await reader.open(windows=TEXTS)
    except Lost as lost:
        visit.lost = str(lost)


async def _click(
    reader: Reader, visit: Visit, draw: random.Random, clicks: int, pause: float
) -> None:
    try:
        for _ in range(0 if visit.lost else clicks):
            await asyncio.sleep(draw.uniform(0, 2) * pause)
            visit.clicks.append(await reader.choose(draw.choice(reader.heads)))
    except Lost as lost:
        visit.lost = str(lost)


def print_header() -> None:
    """Print the head of the table."""
    print(
        "| readers | click, median (s) | 95 % | longest | opening, median (s) | 95 % "
        "| clicks | lost | server (MB) | server (s of processor) | load |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)


def print_row(number: int, visits: list[Visit], servers: Sequence[Server], spent: float) -> None:
    """Print one line of the table, and the reasons of lost sessions."""
    clicks = [seconds for visit in visits for seconds in visit.clicks]
    opened = [visit.opened for visit in visits if visit.opened]
    lost = [visit.lost for visit in visits if visit.lost]
    print(
        f"| {number} | {percentile(clicks, 50):.2f} | {percentile(clicks, 95):.2f} "
        f"| {percentile(clicks, 100):.2f} | {percentile(opened, 50):.2f} "
        f"| {percentile(opened, 95):.2f} | {len(clicks)} | {len(lost)} "
        f"| {sum(memory_mb(server.pid) for server in servers):.0f} | {spent:.1f} "
        f"| {os.getloadavg()[0]:.1f} |",
        flush=True,
    )
    for reason in sorted(set(lost)):
        print(f"  lost: {reason} ({lost.count(reason)})")


def cpu_seconds(servers: Sequence[Server]) -> float:
    """Return the total processor time of the servers so far, in seconds."""
    return sum(sum(psutil.Process(server.pid).cpu_times()[:2]) for server in servers)


def percentile(values: list[float], share: int) -> float:
    """Return the ``share``-th percentile of values; NaN without values."""
    return float(np.percentile(values, share)) if values else float("nan")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


if __name__ == "__main__":
    main()
