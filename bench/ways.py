"""The ways compared by ``make bench``; each runs in a new process and prints one JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bench.measure import timed

os.environ["HF_HUB_OFFLINE"] = "1"


def _model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config()).eval()


def _tokens(windows: int, context: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 50257, (windows, context)))


def notebook(tokens: torch.Tensor) -> dict[str, float]:
    """Cache everything with the bridge, then take the means, as the posts' notebooks do."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    module = _model()
    module.set_attn_implementation("eager")
    bridge = build_bridge_from_module(module, "GPT2LMHeadModel", hf_config=module.config)
    bridge(tokens[:1, :16])

    def work() -> None:
        _, cache = bridge.run_with_cache(tokens)
        for layer in range(12):
            cache[f"blocks.{layer}.attn.hook_k"].mean(0)
            cache[f"blocks.{layer}.attn.hook_pattern"].mean(0)
            cache[f"blocks.{layer}.hook_resid_pre"].mean(0)

    return timed(work)


def our_pass(tokens: torch.Tensor) -> dict[str, float]:
    """Run the streaming pass with all default statistics."""
    from poskernel_core.common.specs import ALL_GATHERED, ModelSpec, default_positions
    from poskernel_core.forward import hooks, loading
    from poskernel_core.models.catalog import Located
    from poskernel_core.models.configuration import read_geometry
    from poskernel_core.passes import streaming
    from poskernel_core.statistics import Sizes

    module = _model()
    config = {**module.config.to_dict(), "model_type": "gpt2"}
    located = Located(ModelSpec(name="random"), None, config, read_geometry("random", config))
    model = loading.hooked(located, _fused_gelu(module), torch.device("cpu"))
    windows, context = tokens.shape
    plan = Sizes(located.geometry, context, windows, default_positions(context), 64, True)
    warm = Sizes(located.geometry, 16, 1, (3,), 1, True)
    streaming.Pass(model, warm, ALL_GATHERED).run(tokens[:1, :16].numpy(), range(1))
    assert module.config._attn_implementation == hooks.IMPLEMENTATION

    def work() -> None:
        run = streaming.Pass(model, plan, ALL_GATHERED)
        run.run(tokens.numpy(), range(windows))
        run.block()

    return timed(work) | {"flops": _flops(windows, context)}


def _fused_gelu(module: Any) -> Any:
    for block in module.transformer.h:
        block.mlp.act = torch.nn.GELU("tanh")
    return module


def body(tokens: torch.Tensor) -> dict[str, float]:
    """Run the unchanged body with fused attention, all windows at once."""
    module = _model()
    module.transformer(tokens[:1, :16], use_cache=False)
    return timed(lambda: module.transformer(tokens, use_cache=False))


def trunk(tokens: torch.Tensor) -> dict[str, float]:
    """Run the bare body in our batches and with our activation, up to the last attention."""
    module = _fused_gelu(_model())
    last = module.transformer.h[-1]

    class Stop(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    last.attn.c_proj.register_forward_pre_hook(stop)

    def work() -> None:
        for pair in tokens.split(max(1, 2048 // tokens.shape[1])):
            try:
                module.transformer(pair, use_cache=False)
            except Stop:
                continue

    work_small = tokens[:1, :16]
    try:
        with torch.inference_mode():
            module.transformer(work_small, use_cache=False)
    except Stop:
        pass
    return timed(work)


def _flops(windows: int, context: int) -> float:
    """Return the operations of our pass: eleven full layers, and the last one's q, k, v, scores."""
    tokens, width, layers = windows * context, 768, 12
    dense = 2 * tokens * width * width
    attention = 2 * tokens * context / 2 * width  # q k^T over the visible half; same for A v
    return (layers - 1) * (12 * dense + 2 * attention) + 3 * dense + 2 * attention


def matmul(_: torch.Tensor) -> dict[str, float]:
    """Measure the machine's rate at the model's MLP product, [2048, 768] x [768, 3072]."""
    left, right = torch.randn(2048, 768), torch.randn(768, 3072)
    left @ right
    times = []
    for _round in range(20):
        began = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - began)
    return {"flops_per_second": 2 * 2048 * 768 * 3072 / float(np.median(times))}


WAYS: dict[str, Callable[[torch.Tensor], dict[str, float]]] = {
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
    print(json.dumps((WAYS | {"matmul": matmul})[way](_tokens(windows, context))))


if __name__ == "__main__":
    main()
