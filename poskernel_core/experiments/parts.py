"""Random sequences with both embeddings, with positions only, and with tokens only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.analyses.position_vs_token import CONDITIONS
from poskernel_core.edits import Chain, Edit
from poskernel_core.experiments.changes import RemovedEmbeddings
from poskernel_core.experiments.mean_scores import PARTS, mean_scores, patterns_and_parts
from poskernel_core.experiments.moments import Moments
from poskernel_core.experiments.sampled import batches, check_size, steps
from poskernel_core.layouts import random_layout

if TYPE_CHECKING:
    from poskernel_core.analyses.position_vs_token import PositionVsTokenParams

__all__ = ["largest_offsets", "position_vs_token"]

MOST_CELLS = 2**22
SHARE = "share of attention"
PER_HEAD = ("condition", "layer", "head")
AXES: dict[str, tuple[str, ...]] = {
    "score": (*PER_HEAD, "query", "key"),
    "pattern": (*PER_HEAD, "query", "key"),
    "profile": (*PER_HEAD, "offset"),
    "largest_offset": PER_HEAD,
    "largest_mass": PER_HEAD,
    "first_mass": PER_HEAD,
}
UNITS = {"score": "score (nats)", "largest_offset": "tokens"}
Numbers = dict[str, tuple[np.ndarray, np.ndarray]]
"""Means and standard errors by name, ``[layer, head, ...]``."""


def position_vs_token(
    subject: Subject, params: PositionVsTokenParams, progress: Progress
) -> Result:
    """Run the three conditions; see :class:`~poskernel_core.analyses.PositionVsToken`.

    Raises:
        BadRequest: too long sequences for so many heads.
    """
    check_size(subject, params.length, MOST_CELLS)
    layout = random_layout(params.length, subject.start_token)
    rotary = subject.model.geometry.scheme == "rotary"
    count = steps(progress, (2 + rotary) * params.samples)
    both, token = Recorder(subject, Edit()), Recorder(subject, RemovedEmbeddings("positions"))
    for some, tokens in batches(subject, layout, params.samples, 0):
        for recorder in (both, token):
            recorder.run(tokens)
            count(len(some))
    if rotary:
        position = mean_scores(subject, batches(subject, layout, params.samples, 0), count)
    else:
        alone = Recorder(subject, RemovedEmbeddings("tokens"))
        alone.run(next(batches(subject, layout, 1, 0))[1])
        position = {name: (mean, np.abs(mean * 0.0)) for name, (mean, _) in alone.numbers().items()}
    return _result(params, [both.numbers(), position, token.numbers()])


def _result(params: PositionVsTokenParams, conditions: list[Numbers]) -> Result:
    values, errors = (
        {name: np.stack([found[name][i] for found in conditions]) for name in conditions[0]}
        for i in (0, 1)
    )
    offset = largest_offsets(values["profile"])
    for arrays in (values, errors):
        arrays["largest_mass"] = np.take_along_axis(arrays["profile"], offset[..., None], -1)[
            ..., 0
        ]
    values["largest_offset"] = offset
    return Result(
        analysis="position-vs-token",
        params=params.model_dump(),
        values=values,
        errors=errors,
        axes=AXES,
        units={name: UNITS.get(name, SHARE) for name in AXES},
        provenance={"conditions": CONDITIONS},
    )


def largest_offsets(profile: np.ndarray) -> np.ndarray:
    """Return the offset of the largest of ``profile [..., offset]`` up to half of the length."""
    return np.argmax(profile[..., : profile.shape[-1] // 2 + 1], axis=-1)


class Recorder(Edit):
    """Records the mean scores and patterns of every layer under another edit."""

    def __init__(self, subject: Subject, edit: Edit) -> None:
        self._model, self._edit = subject.model, Chain([edit, self])
        layers = range(self._model.geometry.n_layers)
        self._means = {name: [Moments() for _ in layers] for name in PARTS}

    def run(self, tokens: Tensor) -> None:
        """Add a batch of sequences."""
        self._model.run(tokens, self._edit, self._observe, keep=0)

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        """See the masked scores of a layer."""
        self._means["score"][layer].add(scores.masked_fill(scores.isinf(), torch.nan))
        return scores

    def _observe(self, layer: int, pattern: Tensor) -> None:
        for name, part in patterns_and_parts(pattern.cpu().double()).items():
            self._means[name][layer].add(part)

    def numbers(self) -> Numbers:
        """Return what was recorded."""
        return {
            name: (np.stack([m.mean for m in layers]), np.stack([m.error for m in layers]))
            for name, layers in self._means.items()
        }
