"""Rotary pairs and spectra once more: plain transformers, complex numbers, plain loops."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.support.builders import hf_eager_model
from tests.support.truth import heads_of, projections_in


@dataclass(repr=False)
class Turned:
    """What a rotary model computes on some windows, as lists over layers.

    `queries`, `keys` [text, head, pos, pair]: complex pairs before the rotation; `rest` the same
    of the dimensions that are not turned, `[text, head, pos, d - 2 pair]`, of queries and of keys.
    `speed` [pair], `factor`, and the `scale` of scores are the model's; every head has a key of its
    own here.
    """

    queries: list[np.ndarray]
    keys: list[np.ndarray]
    rest: list[tuple[np.ndarray, np.ndarray]]
    speed: np.ndarray
    factor: float
    scale: float

    def table(self, layer: int, text: int, head: int, n: int, low: int) -> list[list[float]]:
        """`G[i][j]`: the score of key `j` turned to place `i`, for the query at `n`."""
        seen = slice(low, n + 1)
        queries, keys = self.rest[layer]
        passed = keys[text, head, seen].astype(float) @ queries[text, head, n]
        both = self.queries[layer][text, head, n] * np.conj(self.keys[layer][text, head, seen])
        turns = [np.exp(1j * self.speed * (n - i)) for i in range(low, n + 1)]
        rows = [self.factor**2 * (both * turn).real.sum(axis=1) + passed for turn in turns]
        return [(self.scale * row).tolist() for row in rows]


def turned_of(path: Path, windows: np.ndarray) -> Turned:
    """Take queries and keys from the projections, before anything is rotated."""
    model = hf_eager_model(path)
    seen, config = projections_in(model), model.config
    with torch.inference_mode():
        model(torch.from_numpy(windows), use_cache=False)
    rotary = model.base_model.rotary_emb
    speed = rotary.inv_freq.double().numpy()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    joined = [out for name, out in seen.items() if name.endswith("query_key_value")]
    both = [_fused(out, heads, width) for out in joined]
    if not both:
        queries = [heads_of(out, width) for n, out in seen.items() if n.endswith("q_proj")]
        keys = [heads_of(out, width) for n, out in seen.items() if n.endswith("k_proj")]
        both = [(q, np.repeat(k, heads // k.shape[1], axis=1)) for q, k in
                zip(queries, keys, strict=True)]  # fmt: skip
    pairs = len(speed)
    return Turned(
        [_complex(q, pairs) for q, _ in both],
        [_complex(k, pairs) for _, k in both],
        [(q[..., 2 * pairs :], k[..., 2 * pairs :]) for q, k in both],
        speed,
        float(rotary.attention_scaling),
        next(part.scaling for part in model.modules() if hasattr(part, "scaling")),
    )


def _fused(out: torch.Tensor, heads: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """GPT-NeoX keeps query, key and value of each head side by side."""
    split = out.double().numpy().reshape(*out.shape[:2], heads, 3, width)
    return split[..., 0, :].transpose(0, 2, 1, 3), split[..., 1, :].transpose(0, 2, 1, 3)


def _complex(x: np.ndarray, pairs: int) -> np.ndarray:
    return x[..., :pairs] + 1j * x[..., pairs : 2 * pairs]


def mean_pair(pairs: np.ndarray, head: int, pair: int, skip: int) -> tuple[complex, float, float]:
    """The mean of one pair over texts and positions, of its squared length, of its length."""
    found = pairs[:, head, skip:, pair]
    return found.mean(), (np.abs(found) ** 2).mean(), np.abs(found).mean()


def logit(
    queries: list[complex], keys: list[complex], speed: list[float], strength: float, offset: int
) -> float:
    """S(D): the real part of every pair's product, turned by the offset."""
    turned = np.conj(keys) * np.exp(1j * offset * np.array(speed))
    return strength * float((np.array(queries) * turned).real.sum())
