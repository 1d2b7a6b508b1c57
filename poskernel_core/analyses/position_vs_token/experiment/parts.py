"""Random sequences with both embeddings, with positions only, and with tokens only."""

import numpy as np
import torch

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.position_vs_token.experiment.mean_scores import (
    MEANS,
    mean_scores,
    patterns_and_parts,
)
from poskernel_core.analyses.position_vs_token.spec import (
    CONDITIONS,
    PositionVsToken,
    PositionVsTokenParams,
)
from poskernel_core.analyses.random_tokens.experiment.rows import means
from poskernel_core.analyses.random_tokens.experiment.sampled import batches, check_size, steps
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import random_layout
from poskernel_core.forward.attention import AttentionCall, PatternBlock, masked_scores
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import RemovedEmbeddings
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Moments

MAX_CELLS = 2**22
MeansAndErrors = dict[str, tuple[np.ndarray, np.ndarray]]
"""Means and standard errors by name, ``[layer, head, ...]``."""


def position_vs_token(
    subject: ExperimentContext,
    statistics: Statistics,
    params: PositionVsTokenParams,
    progress: Progress,
) -> Result:
    """Run the three conditions; see :class:`~poskernel_core.analyses.PositionVsToken`."""
    check_size(subject, params.length, MAX_CELLS)
    layout = random_layout(params.length, subject.start_token)
    rotary = subject.model.geometry.scheme != "learned"  # positions are in queries and keys
    count = steps(progress, (2 + rotary) * params.samples)
    layers, model = subject.model.geometry.n_layers, subject.model
    both, token = ScoreParts(layers), ScoreParts(layers)
    runs = ((both, Edit()), (token, RemovedEmbeddings("positions")))
    for some, tokens in batches(subject, layout, params.samples, 0):
        for parts, edit in runs:
            model.run(tokens, edit, [parts], samples=some, keep=0)
            count(len(some))
    if rotary:
        position = mean_scores(subject, batches(subject, layout, params.samples, 0), count)
    else:
        alone, (_, tokens) = ScoreParts(layers), next(batches(subject, layout, 1, 0))
        model.run(tokens, RemovedEmbeddings("tokens"), [alone], keep=0)
        position = {name: (mean, np.abs(mean * 0.0)) for name, (mean, _) in alone.numbers().items()}
    return _result(params, [both.numbers(), position, token.numbers()])


def _result(params: PositionVsTokenParams, conditions: list[MeansAndErrors]) -> Result:
    values, errors = (
        {name: np.stack([found[name][i] for found in conditions]) for name in conditions[0]}
        for i in (0, 1)
    )
    offset = largest_offsets(values["profile"])
    for arrays in (values, errors):
        mass = np.take_along_axis(arrays["profile"], offset[..., None], -1)
        arrays["largest_mass"] = mass[..., 0]
    values["largest_offset"] = offset
    return PositionVsToken.result(params, values, errors, texts={"conditions": CONDITIONS})


def largest_offsets(profile: np.ndarray) -> np.ndarray:
    """Return the offset of the largest ``profile [..., offset]``, up to half of the length."""
    return np.argmax(profile[..., : profile.shape[-1] // 2 + 1], axis=-1)


class ScoreParts(Observer):
    """Mean scores and patterns of every layer, over edited passes.

    Scores are those of the edited stream; no edit here changes scores directly.
    """

    wants_patterns = True

    def __init__(self, layers: int) -> None:
        self._means = {name: [Moments() for _ in range(layers)] for name in MEANS}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Add the masked scores of a layer."""
        scores = masked_scores(call)
        self._means["score"][call.layer].add(scores.masked_fill(scores.isinf(), torch.nan))

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Add the pattern of a layer and its parts."""
        for name, part in patterns_and_parts(block.pattern.cpu().double()).items():
            self._means[name][block.layer].add(part)

    def numbers(self) -> MeansAndErrors:
        """Return the accumulated means and errors."""
        return {name: means(layers) for name, layers in self._means.items()}
