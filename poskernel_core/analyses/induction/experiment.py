"""Run sequences repeated and sequences with several candidates, norms equalised or not."""

from collections import defaultdict
from functools import partial

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.induction import spec
from poskernel_core.analyses.induction.norm_cause import NormCause, NormCauseParams
from poskernel_core.analyses.random_tokens.experiment import sampled
from poskernel_core.analyses.random_tokens.experiment.random_rows import slope_weights
from poskernel_core.analyses.random_tokens.params import Ablations, NormAblations
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import (
    Layout,
    pairs_layout,
    random_layout,
    second_positions,
    sequences,
    twice_layout,
)
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.readout import losses
from poskernel_core.statistics.moments import Moments


def induction_scores(subject: ExperimentContext, params: spec.InductionScoresParams) -> Result:
    """Run the sequences; see :class:`spec.InductionScores`."""
    period, first = params.period, int(subject.start_token)
    layout = twice_layout(period, subject.start_token)
    count = sampled.steps(subject, params.samples)
    take = partial(diagonals, first=first, period=period)
    seen, loss = sampled.PatternMeans(subject.model.geometry.n_layers, take), Moments()
    for some, tokens in sampled.batches(
        subject, layout, params.samples, 0, len(layout.places), count
    ):
        logits = subject.model.run(tokens, Edit(), [seen], samples=some).cpu()
        loss.add(copy_losses(logits, tokens, first, period))
    numbers = seen.numbers() | {"loss": (loss.mean, loss.error)}
    return spec.InductionScores.result(
        params,
        {name: mean for name, (mean, _) in numbers.items()},
        {name: error for name, (_, error) in numbers.items()},
        coordinates={"copy": np.array([1, 2])},
    )


def diagonals(block: PatternBlock, first: int, period: int) -> dict[str, Tensor]:
    """Return a layer's mean attention along three diagonals, ``[text, head]``."""
    tensors: dict[str, Tensor] = {}
    second = block.pattern[..., first + period :, :]
    for name, offset in (("induction", period - 1), ("duplicate", period)):
        # row j of the second copy is at first + period + j
        tensors[name] = second.diagonal(first + period - offset, dim1=-2, dim2=-1)[..., :period]
    tensors["previous_mass"] = block.pattern.diagonal(-1, dim1=-2, dim2=-1)[..., first:]
    return {name: diagonal.cpu().double().mean(dim=-1) for name, diagonal in tensors.items()}


def copy_losses(logits: Tensor, tokens: Tensor, first: int, period: int) -> Tensor:
    """Return the mean loss of every sequence's first and second copy, ``[text, copy]``.

    Without a start token the very first token has no prediction and is left out.
    """
    loss = losses(logits, tokens)
    parts = loss[:, : first + period - 1], loss[:, first + period - 1 :]
    return torch.stack([part.mean(dim=1) for part in parts], dim=1)


MAX_CELLS = 2**23


def induction_recency(subject: ExperimentContext, params: spec.RecencyParams) -> Result:
    """Run every row; see :class:`spec.InductionRecency`."""
    start, layers = subject.start_token, subject.model.geometry.n_layers
    seconds = second_positions(params.length, params.first, params.candidates, start)
    sampled.check_size(subject, params.length, MAX_CELLS, rows=len(seconds))
    count = sampled.steps(subject, len(seconds) * params.samples + sampled.measured(params))
    edit, norms = sampled.ablations(subject, params, params.length, count)
    rows = []
    for second in seconds:
        layout = pairs_layout(params.length, params.first, second, params.candidates, start)
        row = sampled.RowMeans(layout, layers)
        for some, tokens in sampled.batches(subject, layout, params.samples, second, 1, count):
            row.run(subject, edit, tokens, some)
        rows.append(row)
    values, errors = _recency_values(rows)
    if norms is not None:
        values["norm"] = norms
    return spec.InductionRecency.result(
        params,
        values,
        errors,
        coordinates={"second": np.array(seconds)},
        texts={"examples": _examples(subject, rows)},
    )


def _recency_values(
    rows: list[sampled.RowMeans],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    estimates = {
        "probability": sampled.means([row.probability for row in rows]),
        "probability_other": sampled.means([row.other for row in rows]),
        "advantage": sampled.means([row.advantage for row in rows]),
    }
    for name in ("last_row", "candidate_attention", "attention_advantage"):
        estimates[name] = sampled.layers_of(rows, name)
    estimates["probability_rise"] = _rise(*estimates["probability"])
    estimates["attention_rise"] = _rise(*estimates["candidate_attention"])
    values = {name: mean for name, (mean, _) in estimates.items()}
    values["role"] = np.array([row.layout.roles() for row in rows])
    return values, {name: error for name, (_, error) in estimates.items()}


def _rise(mean: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last candidate's rise, last row minus first, with errors of independent rows."""
    rise = np.asarray(mean[-1, ..., -1] - mean[0, ..., -1])
    both = np.asarray(np.hypot(error[-1, ..., -1], error[0, ..., -1]))
    return (rise, both) if len(mean) > 1 else (rise * np.nan, both * np.nan)


def _examples(subject: ExperimentContext, rows: list[sampled.RowMeans]) -> list[list[str]]:
    assert subject.source is not None
    examples = []
    for row in rows:
        stream = row.layout.pairs[-1]
        ids = sequences(row.layout, subject.source, stream, range(1))[0]
        examples.append(subject.decode(ids.tolist()))
    return examples


def recency_patterns(subject: ExperimentContext, params: spec.RecencyPatternsParams) -> Result:
    """Run one row; see :class:`spec.RecencyPatterns`."""
    sampled.check_size(subject, params.length, MAX_CELLS)
    count = sampled.steps(subject, params.samples + sampled.measured(params))
    edit, _ = sampled.ablations(subject, params, params.length, count)
    layout = pairs_layout(
        params.length, params.first, params.second, params.candidates, subject.start_token
    )
    seen = sampled.PatternMeans(
        subject.model.geometry.n_layers, lambda block: {"pattern": block.pattern}
    )
    for some, tokens in sampled.batches(
        subject, layout, params.samples, params.second, count=count
    ):
        subject.model.run(tokens, edit, [seen], samples=some, keep=0)
    pattern, error = seen.numbers()["pattern"]
    return spec.RecencyPatterns.result(
        params,
        {"pattern": pattern.astype(np.float32), "role": np.array(layout.roles())},
        {"pattern": error.astype(np.float32)},
    )


RUNS = ("norms as they are", "norms equalised")
OVER_ROWS = ("probability", "probability_advantage", "attention", "attention_advantage")
RISES = {"probability": "probability_rise", "attention_last": "attention_rise"}


def norm_cause(subject: ExperimentContext, params: NormCauseParams) -> Result:
    """Run every sequence twice; see :class:`induction.norm_cause.NormCause`."""
    start, samples = subject.start_token, params.samples
    seconds = second_positions(params.length, params.first, params.candidates, start)
    switches = {name: getattr(params, name) for name in Ablations.model_fields}
    conditions = [NormAblations(**switches, equalise_norms=equalise) for equalise in (False, True)]
    sequences = len(RUNS) * (len(seconds) + 1) * samples
    count = sampled.steps(
        subject, 2 * sum(sampled.measured(condition) for condition in conditions) + sequences
    )

    def moments(layout: Layout, stream: int, edits: list[Edit]) -> dict[str, Moments]:
        rows, means = _LastRows(params.trend_from), defaultdict[str, Moments](Moments)
        for some, tokens in sampled.batches(subject, layout, samples, stream, logits=1):
            both = []
            for edit in edits:
                logits = subject.model.run(tokens, edit, [rows], samples=some, keep=1)
                both.append(rows.numbers(layout, tokens, logits[:, -1].cpu()))
                count(len(some))
            for name, clean in both[0].items():
                means[name].add(paired(clean, both[1][name]))
        return means

    edits = [
        sampled.ablations(subject, condition, params.length, count)[0] for condition in conditions
    ]
    rows = [
        moments(
            pairs_layout(params.length, params.first, second, params.candidates, start),
            second,
            edits,
        )
        for second in seconds
    ]
    edits = [
        sampled.ablations(subject, condition, params.random_length, count)[0]
        for condition in conditions
    ]
    slope = moments(random_layout(params.random_length, start), 0, edits)["slope"]
    values, errors = {}, {}
    for name, (mean, error) in {**_over_rows(rows), "slope": (slope.mean, slope.error)}.items():
        for place, kind in ((slice(2), name), (2, f"{name}_change")):
            values[kind], errors[kind] = np.asarray(mean[place]), np.asarray(error[place])
    return NormCause.result(params, values, errors, texts={"conditions": RUNS})


def paired(clean: Tensor, flat: Tensor) -> Tensor:
    """Stack values of the same sequences: clean, flat, and flat minus clean, ``[text, 3, ...]``.

    The differences are kept per sequence, so that errors of changes are paired.
    """
    return torch.stack([clean, flat, flat - clean], dim=1)


class _LastRows(Observer):
    """Keeps the last row of every layer's pattern in the latest pass."""

    wants_patterns = True

    def __init__(self, trend_from: int) -> None:
        self._first = trend_from
        self._rows: dict[int, Tensor] = {}
        self._weights: dict[int, Tensor] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer not in self._weights:
            weights = slope_weights(sampled.visible_keys(call), self._first)[-1]
            self._weights[call.layer] = torch.from_numpy(weights)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self._rows[block.layer] = block.pattern[:, :, -1].cpu().double()

    def numbers(self, layout: Layout, tokens: Tensor, logits: Tensor) -> dict[str, Tensor]:
        """Return the values of each sequence: ``[text]`` or ``[text, layer, head]``."""
        rows = torch.stack(list(self._rows.values()), dim=1)
        if not layout.pairs:
            weights = torch.stack(list(self._weights.values()))
            return {"slope": (rows * weights[:, None]).sum(dim=-1)}
        candidates = list(layout.candidates)
        chances = torch.softmax(logits.double(), dim=-1).gather(1, tokens[:, candidates])
        attention = rows[..., candidates]
        return {
            "probability": chances[:, -1],
            "probability_advantage": chances[:, -1] - chances[:, 0],
            "attention": attention.sum(dim=-1),
            "attention_advantage": attention[..., -1] - attention[..., 0],
            "attention_last": attention[..., -1],
        }


def _over_rows(rows: list[dict[str, Moments]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return means over rows, and last row minus first, with errors of independent rows."""
    estimates = {}
    for name in rows[0]:
        mean, error = sampled.means([row[name] for row in rows])
        if name in OVER_ROWS:
            estimates[name] = mean.mean(axis=0), np.sqrt((error**2).sum(axis=0)) / len(rows)
        if name in RISES:
            estimates[RISES[name]] = mean[-1] - mean[0], np.hypot(error[-1], error[0])
    return estimates
