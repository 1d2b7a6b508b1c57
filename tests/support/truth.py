"""Ground truth of a tiny model: plain transformers, eager attention, and hooks on its projections.

No truth goes through `poskernel_core`: rotary rotation and head splitting are done once more.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from poskernel_core.forward.observers import Observer
from tests.support.builders import hf_eager_model

SPLIT = ("gpt2", "gpt_neo", "opt", "llama", "mistral")
"""The kinds of models whose queries and keys are read."""


@dataclass(repr=False)
class Truth:
    """What a model computes on some windows, as lists over layers.

    `attentions` [text, head, query, key]; `queries` [text, head, pos, d] and `keys` [text, kv, pos,
    d], rotated; `residuals` [text, pos, model], before each layer; `logits` [text, pos, token].
    """

    attentions: list[np.ndarray]
    residuals: list[np.ndarray]
    logits: np.ndarray
    queries: list[np.ndarray]
    keys: list[np.ndarray]


def truth_of(path: Path, windows: np.ndarray, still: bool = False) -> Truth:
    """Run plain transformers; queries and keys are there for `SPLIT`.

    `still`: with every token at position 0, queries and keys as they are before a rotation.
    """
    model, ids = hf_eager_model(path), torch.from_numpy(np.asarray(windows))
    config = json.loads((path / "config.json").read_text())
    seen = projections_in(model)
    more = {}
    if still:
        more = {"attention_mask": torch.ones_like(ids), "position_ids": torch.zeros_like(ids)}
        config["rope_parameters"] = None
    with torch.inference_mode():
        out = model(ids, output_attentions=True, output_hidden_states=True, use_cache=False, **more)
    queries, keys = projections_of(config, seen, np.arange(ids.shape[1]))
    return Truth(
        attentions=[a.numpy() for a in out.attentions],
        residuals=[h.numpy() for h in out.hidden_states[: len(out.attentions)]],
        logits=out.logits.numpy(),
        queries=queries,
        keys=keys,
    )


def projections_in(model: nn.Module) -> dict[str, Tensor]:
    """What the maps to queries and keys give in later runs, by their names."""
    seen: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if name.endswith((".q_proj", ".k_proj", ".c_attn", ".query_key_value")):
            module.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out}))
    return seen


def projections_of(
    config: dict[str, Any], seen: dict[str, Tensor], positions: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Split projections into heads, and rotate them where the configuration says so."""
    if config.get("model_type") not in SPLIT:
        return [], []
    joined = [out.chunk(3, dim=-1)[:2] for name, out in seen.items() if name.endswith("c_attn")]
    queries = [q for q, _ in joined] or [o for n, o in seen.items() if n.endswith("q_proj")]
    keys = [k for _, k in joined] or [o for n, o in seen.items() if n.endswith("k_proj")]
    heads = config.get("num_attention_heads") or config.get("num_heads") or config["n_head"]
    width = queries[0].shape[-1] // heads
    angles = turning(config, width, positions)
    split = ([heads_of(x, width) for x in some] for some in (queries, keys))
    return tuple([rotated(x, angles) for x in some] for some in split)


def heads_of(x: Tensor | np.ndarray, width: int) -> np.ndarray:
    """`[text, pos, head * d]` -> `[text, head, pos, d]`."""
    return np.asarray(x, dtype=float).reshape(*x.shape[:2], -1, width).transpose(0, 2, 1, 3)


def turning(config: dict[str, Any], width: int, positions: np.ndarray) -> np.ndarray | None:
    """The angle of every pair at every position, `[pos, pair]`; None without rotation."""
    rope = config.get("rope_parameters")
    if not rope:
        return None
    turned = int(width * rope.get("partial_rotary_factor", 1.0))
    return np.outer(positions, rope["rope_theta"] ** (-2.0 * np.arange(turned // 2) / turned))


def rotated(x: np.ndarray, angles: np.ndarray | None) -> np.ndarray:
    """Halves of the first dimensions turned as pairs; the others pass."""
    if angles is None:
        return x
    pairs = angles.shape[1]
    one, two, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([one * cos - two * sin, two * cos + one * sin, rest], axis=-1)


class Recorder(Observer):
    """Keeps all that it is shown; `patterns` says whether it asks for pattern blocks."""

    def __init__(self, patterns: bool = False) -> None:
        self.wants_patterns = patterns
        self.calls, self.blocks, self.batches = [], [], []
        self.residuals: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.embeddings: list[Tensor] = []

    def _keep(self, kept: list, seen: object, batch, layer: int | None = None) -> None:
        assert layer in (None, len(kept))
        kept.append(seen)
        self.batches.append(batch)

    def positions(self, x: Tensor, batch) -> None:
        self._keep(self.embeddings, x.clone(), batch)

    def residual(self, layer: int, x: Tensor, batch) -> None:
        self._keep(self.residuals, x.clone(), batch, layer)

    def attention_input(self, layer: int, x: Tensor, batch) -> None:
        self._keep(self.inputs, x.clone(), batch, layer)

    def attention(self, call, batch) -> None:
        self._keep(self.calls, call, batch)

    def pattern(self, block, batch) -> None:
        self._keep(self.blocks, replace(block, pattern=block.pattern.clone()), batch)

    def heads(self, layer: int, z: Tensor, batch) -> None:
        self._keep(self.outputs, z.clone(), batch, layer)

    def patterns(self) -> list[Tensor]:
        """The patterns of all layers, `[text, head, query, key]`, put together of their blocks."""
        length, found = self.calls[0].q.shape[2], []
        for call in self.calls:
            whole = torch.zeros(*call.q.shape[:3], length)
            for block in self.blocks:
                if block.layer == call.layer:
                    rows, keys = block.pattern.shape[2:]
                    part = whole[:, :, block.first_row :, block.first_key :]
                    part[:, :, :rows, :keys] += block.pattern
            found.append(whole)
        return found
