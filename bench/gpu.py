"""``python -m bench.gpu``: tests and measurements on a machine with a GPU, at most eight minutes.

It runs the tests that need a GPU. Then it times passes beside the bare model, in float32 and in
bfloat16 (random Llamas of four layers, of several widths), two processes on one GPU, and the map's
arithmetic beside its pass. It prints Markdown, for ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

LIMIT = 480  # seconds
WIDTHS = (768, 2048, 4096)


def main() -> None:
    """Run every part, each in a process of its own, as long as there is time."""
    parser = argparse.ArgumentParser(prog="bench.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, action="append", help="of the Llamas")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for all parts")
    options = parser.parse_args()
    end = time.monotonic() + options.limit
    widths = options.width or list(WIDTHS)

    def passes(dtype: str, widths: Sequence[int]) -> list[str]:
        shape = ["--rounds", "1", "--shape", "16", "512"]
        each = [word for width in widths for word in ("--width", str(width))]
        return ["bench.shapes", "--device", options.device, "--dtype", dtype, *shape, *each]

    parts = {
        "Tests": [["pytest", "-v", "--tb=line", "-m", "gpu", "tests/passes"]],
        "Passes in float32": [passes("float32", widths)],
        "Passes in bfloat16": [passes("bfloat16", widths)],
        "Two processes at once": [passes("bfloat16", widths[:1])] * 2,
        "Arithmetic": [["bench.arithmetic", "--device", options.device]],
    }
    half = time.monotonic() + options.limit / 2
    failed = sum(
        run(title, modules, half if title == "Tests" else end) for title, modules in parts.items()
    )
    sys.exit(failed > 0)


def run(title: str, modules: list[list[str]], end: float) -> bool:
    """Run modules at once, until ``end`` at most; print what each prints, tell if one failed."""
    print(f"## {title}\n", flush=True)
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, "-um", *each],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for each in modules
    ]  # fmt: skip
    for process in processes:
        try:
            told, _ = process.communicate(timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            told = process.communicate()[0] + "\n(ended here: the time was over)"
        print(f"{told.strip()}\n", flush=True)
    print(f"{time.monotonic() - began:.0f} s\n", flush=True)
    return any(process.returncode for process in processes)


if __name__ == "__main__":
    main()
