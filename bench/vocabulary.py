"""``make bench``: contributions of a whole vocabulary to all neurons of GPT-2 small.

50,257 tokens x 3,072 neurons, each way in a separate process:

* ``streamed``: ours: mean, spread, largest and smallest values per neuron, in blocks of neurons;
* ``product``: only the matrix product that this needs, in the same blocks, nothing kept;
* ``whole``: the notebook way: the whole product in memory, then the same numbers from it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable

import torch

from bench.measure import apart, peak_gb, timed

TOKENS, WIDTH, NEURONS, LISTED = 50_257, 768, 3072, 10


def streamed(table: torch.Tensor, readers: torch.Tensor) -> None:
    """Compute the numbers our way, block by block."""
    from poskernel_core.analyses.bag.experiment.vocabulary import ends

    ends(table, readers, LISTED)


def product(table: torch.Tensor, readers: torch.Tensor) -> None:
    """Compute only the product, block by block."""
    from poskernel_core.analyses.bag.experiment.vocabulary import CELLS

    for some in readers.split(CELLS // len(table), dim=1):
        some.T @ table.T


def whole(table: torch.Tensor, readers: torch.Tensor) -> None:
    """Compute the whole product, then the numbers."""
    found = table @ readers
    found.topk(LISTED, dim=0)
    found.topk(LISTED, dim=0, largest=False)
    torch.std_mean(found, dim=0)


WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "streamed": streamed,
    "product": product,
    "whole": whole,
}


def run(way: str, threads: int) -> None:
    """Run one way and print one JSON line."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    table, readers = torch.randn(TOKENS, WIDTH), torch.randn(WIDTH, NEURONS)
    WAYS[way](table[:100], readers)  # warm
    print(json.dumps(timed(lambda: WAYS[way](table, readers)) | {"process_gb": peak_gb()}))


def main() -> None:
    """Run every way in turn and print the table."""
    parser = argparse.ArgumentParser(prog="bench.vocabulary", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()
    if options.way:
        run(options.way, options.threads)
        return
    rounds = [
        {
            way: apart(way, "bench.vocabulary", "--way", way, "--threads", options.threads)
            for way in WAYS
        }
        for _ in range(options.rounds)
    ]
    print(f"\n{TOKENS:,} tokens x {NEURONS:,} neurons, float32, {options.threads} threads, median "
          f"of {options.rounds}\n")  # fmt: skip
    print(
        "| way | seconds | over the plain product | memory above the inputs (GB) | process (GB) |"
    )
    print("|---|---|---|---|---|")
    for way in WAYS:
        seconds, above, process = (
            statistics.median(each[way][name] for each in rounds)
            for name in ("seconds", "peak_gb", "process_gb")
        )
        over = statistics.median(
            each[way]["seconds"] / each["product"]["seconds"] for each in rounds
        )
        print(f"| {way} | {seconds:.2f} | {over:.2f}x | {above:.2f} | {process:.2f} |")


if __name__ == "__main__":
    main()
