"""Ground truth of a tiny model: plain transformers, eager attention, and hooks on its projections.

No truth goes through `poskernel_core`: rotary rotation and head splitting are done once more.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from poskernel_core.forward.observers import Observer
from tests.support.builders import hf_eager_model


@dataclass
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


def truth_of(path: Path, windows: np.ndarray) -> Truth:
    """Run plain transformers; queries and keys are there for GPT-2, GPT-Neo, Llama and Mistral."""
    model, ids = hf_eager_model(path), torch.from_numpy(np.asarray(windows))
    config = json.loads((path / "config.json").read_text())
    seen: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if name.endswith((".q_proj", ".k_proj", ".c_attn")):
            module.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out}))
    with torch.inference_mode():
        out = model(ids, output_attentions=True, output_hidden_states=True, use_cache=False)
    queries, keys = projections_of(config, seen)
    return Truth(
        attentions=[a.numpy() for a in out.attentions],
        residuals=[h.numpy() for h in out.hidden_states[: len(out.attentions)]],
        logits=out.logits.numpy(),
        queries=queries,
        keys=keys,
    )


def projections_of(
    config: dict[str, object], seen: dict[str, Tensor]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Split projections into heads, and rotate them where the configuration says so."""
    if config.get("model_type") not in ("gpt2", "gpt_neo", "llama", "mistral"):
        return [], []
    joined = [out.chunk(3, dim=-1)[:2] for name, out in seen.items() if name.endswith("c_attn")]
    queries = [q for q, _ in joined] or [o for n, o in seen.items() if n.endswith("q_proj")]
    keys = [k for _, k in joined] or [o for n, o in seen.items() if n.endswith("k_proj")]
    heads = config.get("num_attention_heads") or config.get("num_heads") or config["n_head"]
    width = queries[0].shape[-1] // heads
    theta = (config.get("rope_parameters") or {}).get("rope_theta")
    return [_heads(q, width, theta) for q in queries], [_heads(k, width, theta) for k in keys]


def _heads(x: Tensor, width: int, theta: float | None) -> np.ndarray:
    """[text, pos, head * d] -> [text, head, pos, d], rotated by position."""
    split = x.double().numpy().reshape(*x.shape[:2], -1, width).transpose(0, 2, 1, 3)
    if theta is None:
        return split
    half = width // 2
    speed = theta ** (-2.0 * np.arange(half) / width)
    angle = np.arange(split.shape[2])[:, None] * speed
    cos, sin = np.cos(angle), np.sin(angle)
    first, second = split[..., :half], split[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Recorder(Observer):
    """Keeps all that it is shown; `patterns` says whether it asks for pattern blocks."""

    def __init__(self, patterns: bool = False) -> None:
        self.wants_patterns = patterns
        self.calls, self.blocks = [], []
        self.residuals: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.embeddings: list[Tensor] = []
        self.batches = []

    def positions(self, x: Tensor, batch) -> None:
        self.embeddings.append(x.clone())
        self.batches.append(batch)

    def residual(self, layer: int, x: Tensor, batch) -> None:
        """Keep the residual stream before a layer, the layers in order."""
        assert len(self.residuals) == layer
        self.residuals.append(x.clone())
        self.batches.append(batch)

    def attention_input(self, layer: int, x: Tensor, batch) -> None:
        assert len(self.inputs) == layer
        self.inputs.append(x.clone())
        self.batches.append(batch)

    def attention(self, call, batch) -> None:
        self.calls.append(call)
        self.batches.append(batch)

    def pattern(self, block, batch) -> None:
        self.blocks.append(replace(block, pattern=block.pattern.clone()))
        self.batches.append(batch)

    def heads(self, layer: int, z: Tensor, batch) -> None:
        """Keep the heads' outputs, the layers in order."""
        assert len(self.outputs) == layer
        self.outputs.append(z.clone())
        self.batches.append(batch)

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
