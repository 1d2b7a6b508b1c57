"""``python -m bench.live``: how soon results form while a model is read, and what that costs.

Everything is new each time: the store, the worker process, torch. The first part asks for the
effective token count of all heads at one position, and prints when the first picture was there,
when nine of ten kinds were certain, and how far the first picture was from the last. The second
part reads fewer windows, with and without somebody who looks, in turn.
"""

import argparse
import os
import platform
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from poskernel_core.analyses.kernels.etc import stands
from poskernel_core.common.result import Result
from poskernel_core.common.specs import DEFAULT_QUERY, Request
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.job import Job
from poskernel_core.storage.store import Store

READING, WRITING = "Reading", "Writing"


@dataclass
class Times:
    """Seconds since the request: when each step began, and every result with its seconds."""

    began: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)
    results: list[tuple[float, Result]] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.began

    def tell(self, job: Job) -> None:
        """Note the beginning of each step."""
        self.steps.setdefault(job.note.partition(" ")[0], self.now)

    @property
    def read(self) -> float:
        """Seconds that the windows took, with the pictures in between."""
        return self.steps[WRITING] - self.steps[READING]


def watched(model: str, context: int, windows: int, *, looks: bool) -> Times:
    """Compute everything anew, with or without somebody who looks on the way."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Store(Path(folder)))
        run, query = describe_run(model, context=context, windows=windows), _query(context)
        times = Times()
        request = Request(analysis="etc", run=run)
        for result in engine.watch(request, query if looks else None, tell=times.tell):
            times.results.append((times.now, result.select(query=query)))
        engine.close()
        engine.store.close()
    return times


def _query(context: int) -> int:
    return min(DEFAULT_QUERY, context - 1)


def report(times: Times, windows: int) -> None:
    """Print when results were there, and how far the first was from the last."""
    loaded, (first, picture) = times.steps[READING], times.results[0]
    end, last = times.results[-1]
    share = [(at, float(stands(each).mean())) for at, each in times.results]
    nine = next((at for at, part in share if part >= 0.9), None)
    middle = picture.values["etc"] - picture.biases["etc"]
    moved = np.abs(middle - last.values["etc"]) / picture.errors["etc"]
    stages = ", ".join(f"{r.provenance['windows']} at {at:.0f} s" for at, r in times.results)
    print(f"loading (torch, model, text)         {loaded:7.1f} s")
    print(f"first picture, of {picture.provenance['windows']} windows         {first:7.1f} s")
    print(f"nine of ten kinds certain            {'never' if nine is None else f'{nine:7.1f} s'}")
    print(f"the whole result, of {last.provenance['windows']} windows    {end:7.1f} s")
    print(f"seconds a window                     {times.read / windows:7.2f}")
    print(
        "first against last, in the first's errors: median "
        f"{np.nanmedian(moved):.1f}, 95 of 100 heads below {np.nanquantile(moved, 0.95):.1f}"
    )
    print(f"pictures: {stages}\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.live", description=__doc__)
    parser.add_argument("--model", default="demo-gpt2")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--windows", type=int, default=500)
    parser.add_argument("--few", type=int, default=100, help="windows of the second part")
    parser.add_argument("--pairs", type=int, default=2, help="pairs of the second part; 0: none")
    asked = parser.parse_args()
    os.environ["POSKERNEL_SHIPPED"] = "0"
    print(
        f"{asked.model}, {asked.windows} windows of {asked.context} tokens; {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n"
    )
    report(watched(asked.model, asked.context, asked.windows, looks=True), asked.windows)
    ratios = []
    for pair in range(asked.pairs):
        both = {
            looks: watched(asked.model, asked.context, asked.few, looks=looks).read
            for looks in ((True, False) if pair % 2 else (False, True))
        }
        ratios.append(both[True] / both[False])
        print(f"{asked.few} windows: {both[False]:.1f} s, {both[True]:.1f} s with pictures")
    if ratios:
        print(f"pictures cost {100 * (median(ratios) - 1):+.1f} % (median of {len(ratios)} pairs)")


if __name__ == "__main__":
    main()
