"""The last row of sequences: predicted probabilities, and every head's attention."""

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.data.layouts import Layout
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Moments


class RowMeans(Observer):
    """Means over the samples of one layout: probabilities, and the last row of every head."""

    wants_patterns = True

    def __init__(self, layout: Layout, layers: int) -> None:
        self.layout = layout
        self.probability, self.other, self.advantage = Moments(), Moments(), Moments()
        self.last = [Moments() for _ in range(layers)]
        self.candidates = [Moments() for _ in range(layers)]
        self.preference = [Moments() for _ in range(layers)]

    def run(self, subject: ExperimentContext, edit: Edit, tokens: Tensor, samples: range) -> None:
        """Run and add a batch; ``samples`` are the numbers of its sequences."""
        logits = subject.model.run(tokens, edit, [self], samples=samples, keep=1)[:, -1].cpu()
        chances = torch.softmax(logits.double(), dim=-1)
        found = chances.gather(1, tokens[:, list(self.layout.candidates)])
        self.probability.add(found)
        self.advantage.add(found[:, -1] - found[:, 0])
        self.other.add(chances.gather(1, tokens[:, self.layout.others()]).mean(dim=1))

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Add the last row of a layer."""
        last = block.pattern[:, :, -1].cpu().double()
        found = last[..., list(self.layout.candidates)]
        self.last[block.layer].add(last)
        self.candidates[block.layer].add(found)
        self.preference[block.layer].add(found[..., -1] - found[..., 0])


def means(rows: list[Moments]) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard errors, stacked."""
    return np.stack([row.mean for row in rows]), np.stack([row.error for row in rows])


def layers_of(rows: list[list[Moments]], length: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return means and errors of every row and layer; shorter rows are padded with NaN in front."""
    pairs = [means(row) for row in rows]
    mean, error = (np.stack([_padded(pair[i], length) for pair in pairs]) for i in (0, 1))
    return mean, error


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    lack = max(0, length - array.shape[-1])
    return np.pad(array, [*[(0, 0)] * (array.ndim - 1), (lack, 0)], constant_values=np.nan)
