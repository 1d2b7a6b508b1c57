"""Random sequences with positions only and with tokens only, and induction from position 0."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.position_vs_token import spec
from poskernel_core.analyses.random_tokens.experiment.sampled import (
    MeansAndErrors,
    PatternMeans,
    RowMeans,
    batches,
    check_size,
    layers_of,
    means,
    steps,
)
from poskernel_core.common.attention import ScoreRule, repeat_kv
from poskernel_core.common.jackknife import jackknife
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import pairs_layout, random_layout
from poskernel_core.forward.attention import AttentionCall, hidden_keys, masked_scores
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import RemovedEmbeddings
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Groups, Numbers, replicated

MEANS = ("score", "pattern", "profile", "first_mass")


def patterns_and_parts(pattern: Tensor) -> dict[str, Tensor]:
    """Return patterns ``[..., query, key]`` and values derived from them, by name.

    ``profile [..., offset]`` is the mean of each diagonal, position 0 left out as query and key;
    ``first_mass`` is the attention from position 1 to position 0.
    """
    length = pattern.shape[-1]
    diagonals = [pattern.diagonal(-k, dim1=-2, dim2=-1)[..., 1:].mean(-1) for k in range(length)]
    return {
        "pattern": pattern,
        "profile": torch.stack(diagonals, dim=-1),
        "first_mass": pattern[..., 1, 0],
    }


def mean_scores(
    subject: ExperimentContext, batches: Iterator[tuple[range, Tensor]]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return scores of mean queries and mean keys, with their softmax and values derived from it.

    All are ``[layer, head, ...]``, each a pair of value and jackknife standard error over ten
    groups of sequences.
    """
    means = _MeanQueriesAndKeys()
    for some, tokens in batches:
        subject.model.run(tokens, observers=[means], samples=some, until=-1)
    layers = [means.layer(layer) for layer in range(subject.model.geometry.n_layers)]
    return {
        name: (
            np.stack([kept[0][name] for kept in layers]),
            np.stack([jackknife(np.stack([x[name] for x in kept[1:]])) for kept in layers]),
        )
        for name in MEANS
    }


class _MeanQueriesAndKeys(Observer):
    """Sums queries and keys by group of samples."""

    def __init__(self) -> None:
        self._queries: dict[int, Groups] = {}
        self._keys: dict[int, Groups] = {}
        self._calls: dict[int, ScoreRule] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self._calls[call.layer] = call.rule
        self._queries.setdefault(call.layer, Groups()).add(call.q, batch.samples)
        self._keys.setdefault(call.layer, Groups()).add(call.k, batch.samples)

    def layer(self, layer: int) -> list[Numbers]:
        """Return a layer's numbers ``[head, ...]``, then its leave-one-group-out replicates."""
        numbers = partial(self._numbers, self._calls[layer])
        return replicated(numbers, self._queries[layer], self._keys[layer])

    @staticmethod
    def _numbers(rule: ScoreRule, q: np.ndarray, k: np.ndarray) -> Numbers:
        all_of_it = slice(0, q.shape[1])
        keys = repeat_kv(torch.from_numpy(k), len(q))
        scores = rule.capped(rule.scale * torch.from_numpy(q) @ keys.transpose(-1, -2))
        if rule.slopes is not None:
            scores = scores + rule.bias(all_of_it, all_of_it, scores)
        hidden = hidden_keys(q.shape[1], rule.window, scores.device, rule.chunk)
        pattern = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
        parts = {"score": scores.masked_fill(hidden, torch.nan), **patterns_and_parts(pattern)}
        return {name: part.numpy() for name, part in parts.items()}


MAX_CELLS = 2**22


def position_vs_token(subject: ExperimentContext, params: spec.PositionVsTokenParams) -> Result:
    """Run the three conditions; see :class:`spec.PositionVsToken`."""
    check_size(subject, params.length, MAX_CELLS)
    layout = random_layout(params.length, subject.start_token)
    rotary = subject.model.geometry.scheme != "learned"  # positions are in queries and keys
    count = steps(subject, (2 + rotary) * params.samples)
    layers, model = subject.model.geometry.n_layers, subject.model
    both, token = ScoreParts(layers), ScoreParts(layers)
    runs = ((both, Edit()), (token, RemovedEmbeddings("positions")))
    for some, tokens in batches(subject, layout, params.samples, 0):
        for parts, edit in runs:
            model.run(tokens, edit, [parts], samples=some, keep=0)
            count(len(some))
    if rotary:
        random = batches(subject, layout, params.samples, 0, count=count)
        position = mean_scores(subject, random)
    else:
        alone, (_, tokens) = ScoreParts(layers), next(batches(subject, layout, 1, 0))
        model.run(tokens, RemovedEmbeddings("tokens"), [alone], keep=0)
        position = {name: (mean, np.abs(mean * 0.0)) for name, (mean, _) in alone.numbers().items()}
    return _result(params, [both.numbers(), position, token.numbers()])


def _result(params: spec.PositionVsTokenParams, conditions: list[MeansAndErrors]) -> Result:
    values, errors = (
        {name: np.stack([condition[name][i] for condition in conditions]) for name in conditions[0]}
        for i in (0, 1)
    )
    offset = largest_offsets(values["profile"])
    for arrays in (values, errors):
        mass = np.take_along_axis(arrays["profile"], offset[..., None], -1)
        arrays["largest_mass"] = mass[..., 0]
    values["largest_offset"] = offset
    return spec.PositionVsToken.result(
        params, values, errors, texts={"conditions": spec.CONDITIONS}
    )


def largest_offsets(profile: np.ndarray) -> np.ndarray:
    """Return the offset of the largest ``profile [..., offset]``, up to half of the length."""
    return np.argmax(profile[..., : profile.shape[-1] // 2 + 1], axis=-1)


class ScoreParts(PatternMeans):
    """Mean scores and patterns of every layer, over edited passes.

    Scores are those of the edited stream; no edit here changes scores directly.
    """

    def __init__(self, layers: int) -> None:
        super().__init__(layers, lambda block: patterns_and_parts(block.pattern.cpu().double()))

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        scores = masked_scores(call)
        self.layers["score"][call.layer].add(scores.masked_fill(scores.isinf(), torch.nan))


CASES = (
    "start token, [A] at position 1",
    "no start token, [A] at position 0",
    "no start token, [A] at position 1",
)
PLACES = ((True, 1), (False, 0), (False, 1))
"""For every case: whether there is a start token, and the position of the first ``[A]``."""


def position_zero(subject: ExperimentContext, params: spec.PositionZeroParams) -> Result:
    """Run the three cases; see :class:`spec.PositionZero`."""
    assert subject.source is not None
    lacking = subject.source.start is None
    count = steps(subject, (len(CASES) - lacking) * params.samples)
    rows = []
    for case, (start, first) in enumerate(PLACES):
        if start and lacking:
            continue
        layout = pairs_layout(params.length - 1 + first, first, first, 1, start)
        row = RowMeans(layout, subject.model.geometry.n_layers)
        for some, tokens in batches(subject, layout, params.samples, case, 1, count):
            row.run(subject, Edit(), tokens, some)
        rows.append(row)
    pairs = _numbers(rows, params.length)
    gap = 1 if lacking else 0
    return spec.PositionZero.result(
        params,
        {name: _after_gap(mean, gap) for name, (mean, _) in pairs.items()},
        {name: _after_gap(error, gap) for name, (_, error) in pairs.items()},
        texts={"cases": CASES},
        provenance={"start_token": None},
    )


def _numbers(rows: list[RowMeans], length: int) -> MeansAndErrors:
    """Return means and errors by name, stacked over cases; there is one candidate."""
    probability, attention = (
        (mean[..., 0], error[..., 0])
        for mean, error in (
            means([row.probability for row in rows]),
            layers_of(rows, "candidate_attention"),
        )
    )
    return {
        "probability": probability,
        "probability_other": means([row.other for row in rows]),
        "last_row": layers_of(rows, "last_row", length),
        "candidate_attention": attention,
    }


def _after_gap(array: np.ndarray, gap: int) -> np.ndarray:
    """Put NaN before an array of cases, for the ``gap`` cases that could not be run."""
    return np.concatenate([np.full_like(array[:gap], np.nan), array])
