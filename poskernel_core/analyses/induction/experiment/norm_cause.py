"""Measure the recency of induction with layer 0's norms as they are, and equalised."""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.induction.norm_cause import NormCause, NormCauseParams
from poskernel_core.analyses.random_tokens.experiment.random_rows import slope_weights
from poskernel_core.analyses.random_tokens.experiment.rows import means
from poskernel_core.analyses.random_tokens.experiment.sampled import (
    ablations,
    batches,
    measured,
    steps,
    visible_keys,
)
from poskernel_core.analyses.random_tokens.params import Ablations, NormAblations
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import Layout, pairs_layout, random_layout, second_positions
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Moments

RUNS = ("norms as they are", "norms equalised")
OVER_ROWS = ("probability", "probability_advantage", "attention", "attention_advantage")
RISES = {"probability": "probability_rise", "attention_last": "attention_rise"}


def norm_cause(
    subject: ExperimentContext, statistics: Statistics, params: NormCauseParams, progress: Progress
) -> Result:
    """Run every sequence twice; see :class:`~poskernel_core.analyses.NormCause`."""
    start, samples = subject.start_token, params.samples
    seconds = second_positions(params.length, params.first, params.candidates, start)
    switches = {name: getattr(params, name) for name in Ablations.model_fields}
    asked = [NormAblations(**switches, equalise_norms=equalise) for equalise in (False, True)]
    sequences = len(RUNS) * (len(seconds) + 1) * samples
    count = steps(progress, 2 * sum(measured(each) for each in asked) + sequences)

    def moments(layout: Layout, stream: int, edits: list[Edit]) -> dict[str, Moments]:
        rows, found = _LastRows(params.trend_from), defaultdict[str, Moments](Moments)
        for some, tokens in batches(subject, layout, samples, stream, logits=1):
            both = []
            for edit in edits:
                logits = subject.model.run(tokens, edit, [rows], samples=some, keep=1)
                both.append(rows.numbers(layout, tokens, logits[:, -1].cpu()))
                count(len(some))
            for name, clean in both[0].items():
                found[name].add(paired(clean, both[1][name]))
        return found

    edits = [ablations(subject, each, params.length, count)[0] for each in asked]
    rows = [
        moments(
            pairs_layout(params.length, params.first, second, params.candidates, start),
            second,
            edits,
        )
        for second in seconds
    ]
    edits = [ablations(subject, each, params.random_length, count)[0] for each in asked]
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
        """Note which keys a slope is fitted to."""
        if call.layer not in self._weights:
            weights = slope_weights(visible_keys(call), self._first)[-1]
            self._weights[call.layer] = torch.from_numpy(weights)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Keep the last row of a layer."""
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
    found = {}
    for name in rows[0]:
        mean, error = means([row[name] for row in rows])
        if name in OVER_ROWS:
            found[name] = mean.mean(axis=0), np.sqrt((error**2).sum(axis=0)) / len(rows)
        if name in RISES:
            found[RISES[name]] = mean[-1] - mean[0], np.hypot(error[-1], error[0])
    return found
