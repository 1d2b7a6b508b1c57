"""The last row of sequences: what the model predicts, and where every head looks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Subject
from poskernel_core.edits import Edit
from poskernel_core.experiments.moments import Moments
from poskernel_core.layouts import Layout

__all__ = ["Row", "layers_of", "means"]


class Row:
    """Means over the samples of one layout: probabilities, and the last row of every head."""

    def __init__(self, layout: Layout, layers: int) -> None:
        self.layout = layout
        self.probability, self.other, self.advantage = Moments(), Moments(), Moments()
        self.last = [Moments() for _ in range(layers)]
        self.candidates = [Moments() for _ in range(layers)]
        self.preference = [Moments() for _ in range(layers)]

    def run(self, subject: Subject, edit: Edit, tokens: Tensor) -> None:
        """Add a batch of sequences."""
        logits = subject.model.run(tokens, edit, self._observe, keep=1)[:, -1].cpu()
        chances = torch.softmax(logits.double(), dim=-1)
        found = chances.gather(1, tokens[:, list(self.layout.candidates)])
        self.probability.add(found)
        self.advantage.add(found[:, -1] - found[:, 0])
        self.other.add(chances.gather(1, tokens[:, self.layout.others()]).mean(dim=1))

    def _observe(self, layer: int, pattern: Tensor) -> None:
        last = pattern[:, :, -1].cpu().double()
        found = last[..., list(self.layout.candidates)]
        self.last[layer].add(last)
        self.candidates[layer].add(found)
        self.preference[layer].add(found[..., -1] - found[..., 0])


def means(rows: list[Moments]) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard errors, stacked."""
    return np.stack([row.mean for row in rows]), np.stack([row.error for row in rows])


def layers_of(rows: list[list[Moments]], length: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return means and errors of every row and layer; shorter rows get NaN in front."""
    pairs = [means(row) for row in rows]
    mean, error = (np.stack([_padded(pair[i], length) for pair in pairs]) for i in (0, 1))
    return mean, error


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    lack = max(0, length - array.shape[-1])
    return np.pad(array, [*[(0, 0)] * (array.ndim - 1), (lack, 0)], constant_values=np.nan)
