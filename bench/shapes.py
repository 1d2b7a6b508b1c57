"""``python -m bench.shapes``: time of a pass relative to the bare model, for several shapes.

Two random models read windows of several lengths: one of GPT-2 small's size, and a Llama with 30
layers, 9 heads and 3 key heads. Each shape is timed in four ways, alternating in one process, so
that changes of the machine's speed affect all of them:

* ``trunk``: the module's own fused attention, stopped where our pass stops, nothing captured;
* ``pass``: everything that a page's pass gathers, with patterns of all windows;
* ``eighth``: the same with patterns of the first eighth of the windows, as with
  ``--pattern-windows 64`` for 512 texts;
* ``matmul``: the machine's rate at a large matrix product, before and after.

``--shape 2 8192`` asks for other shapes; ``--device cuda --dtype bfloat16`` measures a GPU, and
``--width 4096 --layers 2`` a Llama so wide. The last columns are the most memory that a batch takes
above what is held before (on a GPU, its own).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from bench.measure import now, timed
from poskernel_core.common.specs import ALL_GATHERED, ModelSpec, default_positions
from poskernel_core.forward import loading
from poskernel_core.models.catalog import Located
from poskernel_core.models.configuration import read_geometry
from poskernel_core.models.geometry import Geometry
from poskernel_core.passes import streaming
from poskernel_core.statistics import Sizes

SHAPES = ((32, 256), (16, 512), (8, 1024), (32, 1024))
"""Number of windows, and tokens per window."""
WAYS = ("trunk", "pass", "eighth")

Read: TypeAlias = "Callable[[np.ndarray, range], None]"
"""A function that runs a batch: all tokens ``[window, pos]``, and the batch's windows."""


class _Stop(Exception):
    """Ends a forward pass before the last attention's output."""


def gpt2(activation: str = "gelu_pytorch_tanh") -> Any:
    """Return a random model of GPT-2 small's size, by default with the fused activation of ours."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(activation_function=activation)).eval()


def llama(layers: int = 30, width: int = 576, heads: int = 0, key_heads: int = 0) -> Any:
    """Return a random Llama, by default of SmolLM2-135M's shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    heads = heads or width // 64
    config = LlamaConfig(
        hidden_size=width, intermediate_size=8 * width // 3, num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads or heads // (4 if heads % 3 else 3),
        vocab_size=49152, max_position_embeddings=2**15,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


MODELS: dict[str, Callable[[], Any]] = {"GPT-2 small": gpt2, "Llama, 30 layers": llama}


def trunk(module: Any) -> Read:
    """Return a function that runs a batch with the bare model, up to the last attention."""
    body = module.base_model
    last = body.h[-1].attn.c_proj if hasattr(body, "h") else body.layers[-1].self_attn.o_proj

    def stop(*_: Any) -> None:
        raise _Stop

    last.register_forward_pre_hook(stop)

    def read(tokens: np.ndarray, batch: range) -> None:
        with contextlib.suppress(_Stop):
            ids = torch.from_numpy(tokens[batch.start : batch.stop])
            body(ids.to(module.device), use_cache=False)

    return read


def hooked(module: Any, device: Any) -> loading.LoadedModel:
    """Return a random model as ours."""
    config = module.config.to_dict()
    located = Located(ModelSpec(name="random"), None, config, read_geometry("random", config))
    return loading.hooked(located, module, device)


def our_pass(module: Any) -> Callable[[int, int, int | None], streaming.Pass]:
    """Return a function ``(windows, context, pattern_windows)`` that starts a pass of ours."""
    model = hooked(module, module.device)

    def begin(windows: int, context: int, seen: int | None) -> streaming.Pass:
        plan = Sizes(model.geometry, context, windows, default_positions(context), 64, True)
        return streaming.Pass(model, replace(plan, pattern_windows=seen), ALL_GATHERED)

    return begin


def flops(geometry: Geometry, mlp: int, windows: int, context: int) -> float:
    """Return the floating-point operations of a pass (two per multiply-add).

    Counted are all layers but the last, and the last layer's queries, keys, values and scores.
    ``mlp`` is the number of weights in the matrices of one MLP.
    """
    tokens, width, heads = windows * context, geometry.d_model, geometry.d_head * geometry.n_heads
    qkv = width * (heads + 2 * geometry.n_kv_heads * geometry.d_head)
    scores = context * heads  # q k^T over the visible half, and the same for A v
    whole = qkv + heads * width + mlp + scores
    return 2.0 * tokens * ((geometry.n_layers - 1) * whole + qkv + scores)


def mlp_weights(module: Any) -> int:
    """Return the number of weights in the matrices of one MLP."""
    body = module.base_model
    block = (body.h if hasattr(body, "h") else body.layers)[0]
    return sum(weight.numel() for weight in block.mlp.parameters() if weight.ndim == 2)


def rate(like: torch.Tensor) -> float:
    """Return the floating-point operations per second of [2048, 768] x [768, 3072]."""
    left, right = (torch.randn(*size).to(like) for size in ((2048, 768), (768, 3072)))
    times = []
    for _ in range(20):
        began = now()
        left @ right
        times.append(now() - began)
    return 2 * 2048 * 768 * 3072 / float(np.median(times))


def main() -> None:
    """Run every shape and print the table."""
    parser = argparse.ArgumentParser(prog="bench.shapes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shape", type=int, nargs=2, action="append", help="windows and tokens")
    parser.add_argument("--width", type=int, action="append", help="of a Llama")
    parser.add_argument("--layers", type=int, default=4, help="of these Llamas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    where = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    card = f"{torch.cuda.get_device_name()}, " if options.device.startswith("cuda") else ""
    print(
        f"{card}{options.dtype}, {options.threads} threads, {options.rounds} rounds; "
        f"{platform.machine()}, {os.cpu_count()} cores\n\n"
        "| model | windows × tokens | trunk (s) | all attention, a batch | the whole pass "
        "| an eighth, a batch | the whole pass | of matmul rate | the trunk's own "
        "| a batch's memory (GB) | the trunk's own |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    wide = {f"width {each}": partial(llama, options.layers, each) for each in options.width or ()}
    for name, make in (wide or MODELS).items():
        measure(name, partial(_placed, make, where), options.shape or SHAPES, options.rounds)


def _placed(make: Callable[[], Any], where: dict[str, Any]) -> Any:
    return make().to(**where)


def measure(
    name: str, make: Callable[[], Any], shapes: Sequence[Sequence[int]], rounds: int
) -> None:
    """Print the rows of one model."""
    module = make()
    bare, begin = trunk(module), our_pass(make())
    geometry = read_geometry("random", module.config.to_dict())
    mlp, like = mlp_weights(module), next(module.parameters())
    for windows, context in shapes:
        if context > geometry.n_ctx:
            continue
        tokens = np.random.default_rng(0).integers(0, 40_000, (windows, context))
        once(bare, begin, tokens[: max(1, 2048 // context)])  # to warm up
        batches: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        rates, apart = [rate(like)], dict.fromkeys(WAYS, 0.0)
        for _ in range(rounds):
            found, aside = once(bare, begin, tokens)
            for way in WAYS:
                batches[way] += found[way]
                apart[way] += aside[way]
            rates.append(rate(like))
        work = rounds * flops(geometry, mlp, windows, context)
        print(row(name, windows, context, batches, apart, work, rates))
        sys.stdout.flush()


def once(
    bare: Read, begin: Callable[[int, int, int | None], streaming.Pass], tokens: np.ndarray
) -> tuple[dict[str, list[dict[str, float]]], dict[str, float]]:
    """Time all ways, alternating; return what each batch takes, and seconds outside of batches."""
    windows, context = tokens.shape
    batches: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    apart = dict.fromkeys(WAYS, 0.0)
    passes = {}
    for way, seen in (("pass", None), ("eighth", max(1, windows // 8))):
        began = now()
        passes[way] = begin(windows, context, seen)
        apart[way] += now() - began
    size = streaming.default_batch(passes["pass"].model.device.type, context)
    for batch in streaming.batches(range(windows), size, max(1, windows // 8)):
        for way in WAYS:
            run = bare if way == "trunk" else passes[way].run
            batches[way].append(timed(partial(run, tokens, batch)))
    for way, one in passes.items():
        began = now()
        one.block()
        apart[way] += now() - began
    return batches, apart


def row(
    name: str,
    windows: int,
    context: int,
    batches: dict[str, list[dict[str, float]]],
    apart: dict[str, float],
    work: float,
    rates: list[float],
) -> str:
    """Return a line of the table: the median ratio over batches, and the ratio of the totals."""
    seconds = {way: [each["seconds"] for each in batches[way]] for way in WAYS}
    total = {way: sum(seconds[way]) + apart[way] for way in WAYS}
    over = []
    for way in ("pass", "eighth"):
        pairs = zip(seconds[way], seconds["trunk"], strict=True)
        over.append(statistics.median(mine / bare - 1 for mine, bare in pairs))
        over.append(total[way] / total["trunk"] - 1)
    shares = [work / total[way] / statistics.median(rates) for way in ("pass", "trunk")]
    most = [max(each["peak_gb"] for each in batches[way]) for way in ("pass", "trunk")]
    cells = " | ".join(
        [f"{each:+.0%}" for each in over]
        + [f"{each:.0%}" for each in shares]
        + [f"{each:.2f}" for each in most]
    )
    return f"| {name} | {windows} × {context} | {total['trunk']:.2f} | {cells} |"


if __name__ == "__main__":
    main()
