"""The ways compared by ``make bench``; each runs in a new process and prints one JSON line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import numpy as np
import torch

from bench import shapes
from bench.measure import timed

os.environ["HF_HUB_OFFLINE"] = "1"
UNCHANGED = "gelu_new"
"""GPT-2's own activation."""


def notebook(tokens: np.ndarray) -> dict[str, float]:
    """Cache everything with the bridge, then take the means, as the posts' notebooks do."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    module, ids = shapes.gpt2(UNCHANGED), torch.from_numpy(tokens)
    module.set_attn_implementation("eager")
    bridge = build_bridge_from_module(module, "GPT2LMHeadModel", hf_config=module.config)
    bridge(ids[:1, :16])

    def work() -> None:
        _, cache = bridge.run_with_cache(ids)
        for layer in range(12):
            cache[f"blocks.{layer}.attn.hook_k"].mean(0)
            cache[f"blocks.{layer}.attn.hook_pattern"].mean(0)
            cache[f"blocks.{layer}.hook_resid_pre"].mean(0)

    return timed(work)


def our_pass(tokens: np.ndarray) -> dict[str, float]:
    """Run the streaming pass with all default statistics."""
    begin, (windows, context) = shapes.our_pass(shapes.gpt2()), tokens.shape
    begin(1, 16, None).run(tokens[:1, :16], range(1))
    model = begin(1, 16, None).model

    def work() -> None:
        run = begin(windows, context, None)
        run.run(tokens, range(windows))
        run.block()

    flops = shapes.flops(model.geometry, shapes.mlp_weights(model.module), windows, context)
    return timed(work) | {"flops": flops}


def body(tokens: np.ndarray) -> dict[str, float]:
    """Run the unchanged body with fused attention, all windows at once."""
    module, ids = shapes.gpt2(UNCHANGED), torch.from_numpy(tokens)
    module.transformer(ids[:1, :16], use_cache=False)
    return timed(lambda: module.transformer(ids, use_cache=False))


def trunk(tokens: np.ndarray) -> dict[str, float]:
    """Run the bare body in our batches and with our activation, up to the last attention."""
    read, (windows, context) = shapes.trunk(shapes.gpt2()), tokens.shape
    size = max(1, 2048 // context)
    read(tokens[:1, :16], range(1))

    def work() -> None:
        for first in range(0, windows, size):
            read(tokens, range(first, first + size))

    return timed(work)


def matmul(_: np.ndarray) -> dict[str, float]:
    """Measure the machine's rate at the model's MLP product, [2048, 768] x [768, 3072]."""
    return {"flops_per_second": shapes.rate(torch.empty(0))}


WAYS: dict[str, Callable[[np.ndarray], dict[str, float]]] = {
    "notebook": notebook,
    "pass": our_pass,
    "body": body,
    "trunk": trunk,
}


def main() -> None:
    """Run one way: ``python -m bench.ways WAY WINDOWS CONTEXT THREADS``."""
    way, windows, context, threads = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tokens = np.random.default_rng(0).integers(0, 50257, (windows, context))
    print(json.dumps((WAYS | {"matmul": matmul})[way](tokens)))


if __name__ == "__main__":
    main()
