"""Run random sequences repeated once, and measure attention to the token after the duplicate."""

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.induction.spec import InductionScores, InductionScoresParams
from poskernel_core.analyses.random_tokens.experiment.rows import means
from poskernel_core.analyses.random_tokens.experiment.sampled import batches, steps
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import twice_layout
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Moments

NAMES = ("induction", "duplicate", "previous_mass")


def induction_scores(
    subject: ExperimentContext,
    statistics: Statistics,
    params: InductionScoresParams,
    progress: Progress,
) -> Result:
    """Run the sequences; see :class:`~poskernel_core.analyses.InductionScores`."""
    period, first = params.period, int(subject.start_token)
    layout = twice_layout(period, subject.start_token)
    count = steps(progress, params.samples)
    diagonals, losses = _Diagonals(subject.model.geometry.n_layers, first, period), Moments()
    for some, tokens in batches(subject, layout, params.samples, 0, logits=len(layout.places)):
        logits = subject.model.run(tokens, Edit(), [diagonals], samples=some).cpu()
        losses.add(_copy_losses(logits, tokens, first, period))
        count(len(some))
    found = {name: means(layers) for name, layers in diagonals.means.items()}
    found["loss"] = (losses.mean, losses.error)
    return InductionScores.result(
        params,
        {name: mean for name, (mean, _) in found.items()},
        {name: error for name, (_, error) in found.items()},
        coordinates={"copy": np.array([1, 2])},
    )


class _Diagonals(Observer):
    """Mean attention along three diagonals, ``[head]`` for every layer, over edited passes."""

    wants_patterns = True

    def __init__(self, layers: int, first: int, period: int) -> None:
        self.means = {name: [Moments() for _ in range(layers)] for name in NAMES}
        self._first, self._period = first, period

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Add the diagonals of a layer."""
        pattern, first, period = block.pattern, self._first, self._period
        second = pattern[..., first + period :, :]
        for name, offset in (("induction", period - 1), ("duplicate", period)):
            # row j of the second copy is at first + period + j
            diagonal = second.diagonal(first + period - offset, dim1=-2, dim2=-1)[..., :period]
            self.means[name][block.layer].add(diagonal.cpu().double().mean(dim=-1))
        before = pattern.diagonal(-1, dim1=-2, dim2=-1)[..., first:]
        self.means["previous_mass"][block.layer].add(before.cpu().double().mean(dim=-1))


def _copy_losses(logits: Tensor, tokens: Tensor, first: int, period: int) -> Tensor:
    """Return the mean loss of every sequence's first and second copy, ``[text, copy]``.

    Without a start token the very first token has no prediction and is left out.
    """
    loss = torch.stack(
        [_losses(text[:-1], ids[1:]) for text, ids in zip(logits, tokens, strict=True)]
    )
    parts = loss[:, : first + period - 1], loss[:, first + period - 1 :]
    return torch.stack([part.mean(dim=1) for part in parts], dim=1)


def _losses(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the loss at every position, ``[pos]``. Takes one text, because float64 is large."""
    return torch.nn.functional.cross_entropy(logits.double(), tokens, reduction="none")
