"""``make bench``: compare the streaming pass with the notebook way, each in a separate process.

A random model of GPT-2 small's size reads 8 windows of 1,024 tokens:

* ``notebook``: ``run_with_cache`` of everything by the transformer_lens bridge, then the means;
* ``pass``: our pass (mean keys, sampled queries, mean patterns and profiles, mean residuals);
* ``body``: the bare Hugging Face body with fused attention, nothing captured;
* ``trunk``: the same body stopped where our pass stops, before the last layer's attention output.

Every figure is the median over rounds. Each round runs all ways, so that changes of the machine's
speed affect all of them.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics

from bench.measure import apart
from bench.ways import WAYS


def main() -> None:
    """Run every way in turn and print the table."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    options = parser.parse_args()
    sizes, ways = (options.windows, options.context, options.threads), ("matmul", *WAYS)
    rounds = [
        {way: apart(way, "bench.ways", way, *sizes) for way in ways} for _ in range(options.rounds)
    ]
    print_table(rounds, options)


def print_table(rounds: list[dict[str, dict[str, float]]], options: argparse.Namespace) -> None:
    """Print the medians and the ratios of all rounds as a Markdown table."""

    def median(way: str, name: str) -> float:
        return statistics.median(each[way][name] for each in rounds)

    print(
        f"{options.windows} windows of {options.context} tokens, GPT-2-small-sized random model, "
        f"float32, {options.threads} threads, median of {options.rounds}; "
        f"{platform.machine()}, {os.cpu_count()} cores\n"
    )
    print("| way | seconds | peak memory above the model (GB) |\n|---|---|---|")
    for way in WAYS:
        print(f"| {way} | {median(way, 'seconds'):.2f} | {median(way, 'peak_gb'):.2f} |")
    faster = _ratios(rounds, "notebook", "pass", "seconds")
    smaller = _ratios(rounds, "notebook", "pass", "peak_gb")
    over_body = [r - 1 for r in _ratios(rounds, "pass", "body", "seconds")]
    over_trunk = [r - 1 for r in _ratios(rounds, "pass", "trunk", "seconds")]
    share = [
        each["pass"]["flops"] / each["pass"]["seconds"] / each["matmul"]["flops_per_second"]
        for each in rounds
    ]
    print("\n| ratio | median | range | aim |\n|---|---|---|---|")
    print(_row("pass faster than the notebook way", faster, "over 3×", "{:.1f}×"))
    print(_row("pass smaller in memory", smaller, "over 20×", "{:.0f}×"))
    print(_row("time over the bare body forward", over_body, "under 3 %", "{:+.0%}"))
    print(_row("time over the trunk, nothing captured", over_trunk, "", "{:+.0%}"))
    print(_row("share of the machine's matmul rate", share, "over 70 %", "{:.0%}"))


def _ratios(
    rounds: list[dict[str, dict[str, float]]], over: str, under: str, name: str
) -> list[float]:
    return [each[over][name] / each[under][name] for each in rounds]


def _row(label: str, values: list[float], aim: str, form: str) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"| {label} | {form.format(middle)} | {form.format(low)} – {form.format(high)} | {aim} |"


if __name__ == "__main__":
    main()
