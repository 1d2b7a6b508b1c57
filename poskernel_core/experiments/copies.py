"""A random sequence, twice: who attends to the token after the earlier copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.experiments.moments import Moments
from poskernel_core.experiments.sampled import batches, steps
from poskernel_core.layouts import twice_layout

if TYPE_CHECKING:
    from poskernel_core.analyses.induction import InductionScoresParams

__all__ = ["induction_scores"]

NAMES = ("induction", "duplicate", "previous_mass")


def induction_scores(subject: Subject, params: InductionScoresParams, progress: Progress) -> Result:
    """Run the sequences; see :class:`~poskernel_core.analyses.InductionScores`."""
    period, first = params.period, int(subject.start_token)
    layout = twice_layout(period, subject.start_token)
    count = steps(progress, params.samples)
    means = {name: [Moments() for _ in range(subject.model.geometry.n_layers)] for name in NAMES}
    losses = Moments()

    def observe(layer: int, pattern: Tensor) -> None:
        second = pattern[..., first + period :, :]
        for name, offset in (("induction", period - 1), ("duplicate", period)):
            # row j of the second copy stands at first + period + j
            diagonal = second.diagonal(first + period - offset, dim1=-2, dim2=-1)[..., :period]
            means[name][layer].add(diagonal.cpu().double().mean(dim=-1))
        before = pattern.diagonal(-1, dim1=-2, dim2=-1)[..., first:]
        means["previous_mass"][layer].add(before.cpu().double().mean(dim=-1))

    for some, tokens in batches(subject, layout, params.samples, 0, logits=len(layout.places)):
        logits = subject.model.run(tokens, None, observe).cpu()
        losses.add(_copy_losses(logits, tokens, first, period))
        count(len(some))
    found = {name: (_stack(means[name], "mean"), _stack(means[name], "error")) for name in NAMES}
    found["loss"] = (losses.mean, losses.error)
    return Result(
        analysis="induction-scores",
        params=params.model_dump(),
        values={name: mean for name, (mean, _) in found.items()},
        errors={name: error for name, (_, error) in found.items()},
        axes={name: ("copy",) if name == "loss" else ("layer", "head") for name in found},
        units={name: "nats" if name == "loss" else "share of attention" for name in found},
        coordinates={"copy": np.array([1, 2])},
    )


def _stack(moments: list[Moments], what: str) -> np.ndarray:
    return np.stack([getattr(each, what) for each in moments])


def _copy_losses(logits: Tensor, tokens: Tensor, first: int, period: int) -> Tensor:
    """Return the mean loss of every sequence's first and second copy, ``[text, copy]``.

    The first token of all has nothing before it where there is no start token, and is left out.
    """
    flat = logits[:, :-1].transpose(1, 2).double()
    loss = torch.nn.functional.cross_entropy(flat, tokens[:, 1:], reduction="none")
    parts = loss[:, : first + period - 1], loss[:, first + period - 1 :]
    return torch.stack([part.mean(dim=1) for part in parts], dim=1)
