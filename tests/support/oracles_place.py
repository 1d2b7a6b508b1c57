"""Place and content once more: transformers' own rotation of every key at every place, in loops."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from tests.support.builders import hf_eager_model
from tests.support.oracles import mean


@dataclass(repr=False)
class Layer:
    """What transformers' rotation of a layer is given, for some windows."""

    queries: torch.Tensor
    keys: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    rotate: object
    scale: float

    def table(self, text: int, head: int, n: int, low: int) -> list[list[float]]:
        """`G[i][j]`: the score of key `j` rotated to place `i`, for the query at `n`."""
        kv = head * self.keys.shape[1] // self.queries.shape[1]
        query = self._at(self.queries[text, head, n : n + 1], n)[0]
        keys = self.keys[text, kv, low : n + 1]
        return [(self.scale * self._at(keys, i) @ query).tolist() for i in range(low, n + 1)]

    def _at(self, vectors: torch.Tensor, place: int) -> np.ndarray:
        """`[vector, d]`, all of them rotated to one place."""
        each = vectors.double()[None, None]
        cos, sin = (one[:1, place : place + 1].double() for one in (self.cos, self.sin))
        return self.rotate(each, each, cos, sin)[1][0, 0].numpy()


def layers_of(path: Path, windows: np.ndarray) -> list[Layer]:
    """Run plain transformers with its eager attention; layers without rotation are left out."""
    model, found = hf_eager_model(path), []
    attentions = [
        m for name, m in model.named_modules() if name.endswith(("self_attn", ".attention"))
    ]
    module = sys.modules[type(attentions[0]).__module__]
    rotate = module.apply_rotary_pos_emb

    def seen(q, k, cos, sin, *more, **named):
        found.append(Layer(q.clone(), k.clone(), cos.clone(), sin.clone(), rotate, 0.0))
        return rotate(q, k, cos, sin, *more, **named)

    with torch.inference_mode(), patch.object(module, "apply_rotary_pos_emb", seen):
        model(torch.from_numpy(windows), use_cache=False)
    for layer in found:
        layer.scale = attentions[0].scaling
    return found


def parts(table: list[list[float]]) -> tuple[float, float, float, float]:
    """Place, content and interaction of a table, and twice the covariance along its diagonal."""
    size = range(len(table))
    whole = mean([mean(row) for row in table])
    place = [mean(row) - whole for row in table]
    content = [mean([row[j] for row in table]) - whole for j in size]
    rest = [(table[i][j] - whole - place[i] - content[j]) ** 2 for i in size for j in size]
    return (
        mean([a**2 for a in place]),
        mean([b**2 for b in content]),
        mean(rest),
        2 * mean([a * b for a, b in zip(place, content, strict=True)]),
    )


def shares(rows: list[tuple[float, float, float, float]]) -> list[float]:
    """The shares of all windows together."""
    sums = [math.fsum(column) for column in zip(*rows, strict=True)]
    return [each / math.fsum(sums[:3]) for each in sums]
