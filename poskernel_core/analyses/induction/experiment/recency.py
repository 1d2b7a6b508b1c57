"""Sequences with several candidates after the same token: which of them the model predicts."""

import numpy as np

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    RecencyParams,
    RecencyPatterns,
    RecencyPatternsParams,
)
from poskernel_core.analyses.random_tokens.experiment.rows import RowMeans, layers_of, means
from poskernel_core.analyses.random_tokens.experiment.sampled import (
    ablations,
    batches,
    check_size,
    measured,
    steps,
)
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import pairs_layout, second_positions, sequences
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Moments

MAX_CELLS = 2**23


def induction_recency(
    subject: ExperimentContext, statistics: Statistics, params: RecencyParams, progress: Progress
) -> Result:
    """Run every row; see :class:`~poskernel_core.analyses.InductionRecency`."""
    start, layers = subject.start_token, subject.model.geometry.n_layers
    seconds = second_positions(params.length, params.first, params.candidates, start)
    check_size(subject, params.length, MAX_CELLS, rows=len(seconds))
    count = steps(progress, len(seconds) * params.samples + measured(params))
    edit, norms = ablations(subject, params, params.length, count)
    rows = []
    for second in seconds:
        layout = pairs_layout(params.length, params.first, second, params.candidates, start)
        row = RowMeans(layout, layers)
        for some, tokens in batches(subject, layout, params.samples, second, logits=1):
            row.run(subject, edit, tokens, some)
            count(len(some))
        rows.append(row)
    values, errors = _recency_values(rows)
    if norms is not None:
        values["norm"] = norms
    return InductionRecency.result(
        params,
        values,
        errors,
        coordinates={"second": np.array(seconds)},
        texts={"examples": _examples(subject, rows)},
    )


def _recency_values(rows: list[RowMeans]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    found = {
        "probability": means([row.probability for row in rows]),
        "probability_other": means([row.other for row in rows]),
        "advantage": means([row.advantage for row in rows]),
        "last_row": layers_of([row.last for row in rows]),
        "candidate_attention": layers_of([row.candidates for row in rows]),
        "attention_advantage": layers_of([row.preference for row in rows]),
    }
    found["probability_rise"] = _rise(*found["probability"])
    found["attention_rise"] = _rise(*found["candidate_attention"])
    values = {name: mean for name, (mean, _) in found.items()}
    values["role"] = np.array([row.layout.roles() for row in rows])
    return values, {name: error for name, (_, error) in found.items()}


def _rise(mean: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last candidate's rise, last row minus first, with errors of independent rows."""
    rise = np.asarray(mean[-1, ..., -1] - mean[0, ..., -1])
    both = np.asarray(np.hypot(error[-1, ..., -1], error[0, ..., -1]))
    return (rise, both) if len(mean) > 1 else (rise * np.nan, both * np.nan)


def _examples(subject: ExperimentContext, rows: list[RowMeans]) -> list[list[str]]:
    """Return the text of the first sequence of every row."""
    assert subject.source is not None
    found = []
    for row in rows:
        stream = row.layout.pairs[-1]
        ids = sequences(row.layout, subject.source, stream, range(1))[0]
        found.append(subject.decode(ids.tolist()))
    return found


def recency_patterns(
    subject: ExperimentContext,
    statistics: Statistics,
    params: RecencyPatternsParams,
    progress: Progress,
) -> Result:
    """Run one row; see :class:`~poskernel_core.analyses.RecencyPatterns`."""
    check_size(subject, params.length, MAX_CELLS)
    count = steps(progress, params.samples + measured(params))
    edit, _ = ablations(subject, params, params.length, count)
    layout = pairs_layout(
        params.length, params.first, params.second, params.candidates, subject.start_token
    )
    seen = _MeanPatterns(subject.model.geometry.n_layers)
    for some, tokens in batches(subject, layout, params.samples, params.second):
        subject.model.run(tokens, edit, [seen], samples=some, keep=0)
        count(len(some))
    pattern, error = means(seen.layers)
    return RecencyPatterns.result(
        params,
        {"pattern": pattern.astype(np.float32), "role": np.array(layout.roles())},
        {"pattern": error.astype(np.float32)},
    )


class _MeanPatterns(Observer):
    """The mean pattern of every layer, over edited passes."""

    wants_patterns = True

    def __init__(self, layers: int) -> None:
        self.layers = [Moments() for _ in range(layers)]

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Add the pattern of a layer."""
        self.layers[block.layer].add(block.pattern)
