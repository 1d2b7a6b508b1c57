"""``python -m bench.arithmetic``: time of the map's arithmetic relative to the pass that it is of.

Random Llamas read random tokens; then effective token counts and their errors are computed from
the sums, which is the largest arithmetic of all questions: in 32 bits on all cores, in 64 bits, and
with ``--device cuda`` on the GPU that ran the pass.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

import poskernel_core as pk
from bench.measure import timed
from bench.shapes import hooked, llama
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.replicates import CORES
from poskernel_core.common import arithmetic

SHAPES = {
    "30 layers × 9 heads of width 64, 60 × 1,024 tokens": ((30, 576, 9, 3), (60, 1024)),
    "80 layers × 64 heads of width 8, 20 × 128 tokens": ((80, 512, 64, 8), (20, 128)),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.arithmetic", description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    card = f"{torch.cuda.get_device_name()}, " if device.type == "cuda" else ""
    print(
        f"{card}{CORES} threads of arithmetic, {platform.machine()}\n\n"
        "| model and texts | pass (s) | arithmetic (s) | of the pass | in 64 bits (s) "
        "| on the GPU (s) |\n|---|---:|---:|---:|---:|---:|",
        flush=True,
    )
    for name, (sizes, shape) in SHAPES.items():
        model = hooked(llama(*sizes).to(device), device)
        tokens = np.random.default_rng(0).integers(0, 40_000, shape)
        found: list[Any] = []
        gathered = timed(partial(_keep, found, partial(pk.run_pass, model, tokens)))["seconds"]
        here = _answer(found[0])
        with mock.patch.object(arithmetic, "carry_out", _in_64_bits):
            wide = _answer(found[0])
        there = "–"
        if device.type != "cpu":
            arithmetic.run_on(partial(torch.tensor, device=device))
            there = f"{_answer(found[0]):.1f}"
            arithmetic.run_on(None)
        share = here / gathered
        cells = f"{gathered:.1f} | {here:.1f} | {share:.0%} | {wide:.1f} | {there}"
        print(f"| {name} | {cells} |", flush=True)


def _in_64_bits(work: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return work(*(array.astype(np.float64) for array in arrays))


def _keep(found: list[Any], work: Callable[[], Any]) -> None:
    found.append(work())


def _answer(statistics: Any) -> float:
    question, views = EtcHeatMap(), {"main": statistics}
    return timed(lambda: question.answer(views, EtcParams(), lambda done, total: None))["seconds"]


if __name__ == "__main__":
    main()
