"""A second GPT-2: one window, in float64, written out, with places to edit.

It shares no code with `poskernel_core`, `transformers`, or `torch`, and is as slow as it is plain.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

Weights = dict[str, np.ndarray]


def _same(*given: Any) -> np.ndarray:
    return given[-1]


@dataclass(frozen=True)
class Edits:
    """What a run changes on its way; by default nothing.

    Attributes:
        tokens: token embeddings `[pos, model]`, before positions are added.
        positions: positional embeddings `[pos, model]`, before they are added.
        stream: `(layer, rows)`, the stream before a layer.
        scores: `(layer, head, matrix)`, `[query, key]`, scaled, -inf in the future.
        pattern: `(layer, head, matrix)`, `[query, key]`, after the softmax.
        head_output: `(layer, head, rows)`, `A v`, `[pos, d]`, before `W_O`.
        layer_output: `(layer, rows)`, the attention's output after `W_O` and its bias.
    """

    tokens: Callable[[np.ndarray], np.ndarray] = _same
    positions: Callable[[np.ndarray], np.ndarray] = _same
    stream: Callable[[int, np.ndarray], np.ndarray] = _same
    scores: Callable[[int, int, np.ndarray], np.ndarray] = _same
    pattern: Callable[[int, int, np.ndarray], np.ndarray] = _same
    head_output: Callable[[int, int, np.ndarray], np.ndarray] = _same
    layer_output: Callable[[int, np.ndarray], np.ndarray] = _same


@dataclass(frozen=True, repr=False)
class Run:
    """What a run saw, edits included.

    `logits [pos, vocab]`, `patterns [layer, head, query, key]`, `streams [layer, pos, model]`
    before each layer.
    """

    logits: np.ndarray
    patterns: np.ndarray
    streams: np.ndarray


class _Sizes(NamedTuple):
    layers: int
    heads: int
    eps: float = 1e-5
    mlp: bool = False
    by_layer: bool = False


def run(path: Path, ids: Sequence[int], edits: Edits | None = None) -> Run:
    """Run a model of a directory in hub format on one window of token ids."""
    edits = edits or Edits()
    sizes = _sizes(json.loads((path / "config.json").read_text()))
    weights = _weights(path)
    tokens = edits.tokens(weights["wte.weight"][list(ids)])
    rows = tokens + edits.positions(weights["wpe.weight"][: len(ids)])
    streams, patterns = [], []
    for layer in range(sizes.layers):
        rows = edits.stream(layer, rows)
        streams.append(rows)
        written, pattern = _attention(rows, weights, layer, sizes, edits)
        patterns.append(pattern)
        rows = rows + edits.layer_output(layer, written)
        if sizes.mlp:
            rows = rows + _mlp(rows, weights, layer, sizes)
    final = _norm(rows, weights, "ln_f", sizes.eps)
    logits = final @ weights["wte.weight"].T
    return Run(logits=logits, patterns=np.array(patterns), streams=np.array(streams))


def _sizes(config: dict) -> _Sizes:
    if config.get("attn_only"):
        return _Sizes(config["n_layers"], config["n_heads"])
    by_layer = config.get("scale_attn_by_inverse_layer_idx", False)
    return _Sizes(config["n_layer"], config["n_head"], config["layer_norm_epsilon"], True, by_layer)


@cache
def _weights(path: Path) -> Weights:
    """All tensors in float64, without `transformer.` in front of their names."""
    tensors = load_file(path / "model.safetensors")
    return {
        name.removeprefix("transformer."): tensor.astype(np.float64)
        for name, tensor in tensors.items()
    }


def _linear(rows: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """`x W + b`; GPT-2's weights have the input first."""
    return rows @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _norm(rows: np.ndarray, weights: Weights, name: str, eps: float) -> np.ndarray:
    moved = rows - rows.mean(axis=1, keepdims=True)
    normed = moved / np.sqrt((moved**2).mean(axis=1, keepdims=True) + eps)
    return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _attention(
    rows: np.ndarray, weights: Weights, layer: int, sizes: _Sizes, edits: Edits
) -> tuple[np.ndarray, np.ndarray]:
    """What a layer's heads write, `[pos, model]`, and their patterns, `[head, query, key]`."""
    normed = _norm(rows, weights, f"h.{layer}.ln_1", sizes.eps)
    width, d = rows.shape[1], rows.shape[1] // sizes.heads
    joint = _linear(normed, weights, f"h.{layer}.attn.c_attn")
    outputs, patterns = np.zeros_like(rows), []
    for head in range(sizes.heads):
        first = head * d
        q, k, v = (joint[:, start + first :][:, :d] for start in (0, width, 2 * width))
        scale = 1 / math.sqrt(d) / (layer + 1 if sizes.by_layer else 1)
        future = np.arange(len(q)) > np.arange(len(q))[:, None]
        scores = edits.scores(layer, head, np.where(future, -np.inf, scale * q @ k.T))
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        pattern = edits.pattern(layer, head, powers / powers.sum(axis=1, keepdims=True))
        patterns.append(pattern)
        outputs[:, first : first + d] = edits.head_output(layer, head, pattern @ v)
    return _linear(outputs, weights, f"h.{layer}.attn.c_proj"), np.array(patterns)


def _mlp(rows: np.ndarray, weights: Weights, layer: int, sizes: _Sizes) -> np.ndarray:
    """What a layer's neurons write; their activation is GPT-2's tanh form of GELU."""
    x = _linear(_norm(rows, weights, f"h.{layer}.ln_2", sizes.eps), weights, f"h.{layer}.mlp.c_fc")
    active = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return _linear(active, weights, f"h.{layer}.mlp.c_proj")
