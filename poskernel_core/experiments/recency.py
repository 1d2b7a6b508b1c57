"""Sequences with several candidates behind the same token: which of them the model predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.experiments.moments import Moments
from poskernel_core.experiments.rows import Row, layers_of, means
from poskernel_core.experiments.sampled import batches, check_size, measured, steps, switched
from poskernel_core.layouts import ROLES, pairs_layout, second_positions, sequences

if TYPE_CHECKING:
    from poskernel_core.analyses.induction import RecencyParams, RecencyPatternsParams

__all__ = ["induction_recency", "recency_patterns"]

SHARE = "share of attention"
MOST_CELLS = 2**23


def induction_recency(subject: Subject, params: RecencyParams, progress: Progress) -> Result:
    """Run every row; see :class:`~poskernel_core.analyses.InductionRecency`.

    Raises:
        BadRequest: a head that is not there.
    """
    start, layers = subject.start_token, subject.model.geometry.n_layers
    seconds = second_positions(params.length, params.first, params.candidates, start)
    check_size(subject, params.length, MOST_CELLS, rows=len(seconds))
    count = steps(progress, len(seconds) * params.samples + measured(params))
    edit, norms = switched(subject, params, params.length, count)
    rows = []
    for second in seconds:
        layout = pairs_layout(params.length, params.first, second, params.candidates, start)
        row = Row(layout, layers)
        for some, tokens in batches(subject, layout, params.samples, second, logits=1):
            row.run(subject, edit, tokens)
            count(len(some))
        rows.append(row)
    values, errors = _recency_values(rows)
    if norms is not None:
        values["norm"] = norms
    return Result(
        analysis="induction-recency",
        params=params.model_dump(),
        values=values,
        errors=errors,
        axes={name: AXES[name] for name in values},
        units={name: UNITS.get(name, SHARE) for name in values},
        labels={"role": ROLES},
        coordinates={"second": np.array(seconds)},
        provenance={"examples": _examples(subject, rows)},
    )


AXES: dict[str, tuple[str, ...]] = {
    "probability": ("second", "pair"),
    "probability_other": ("second",),
    "advantage": ("second",),
    "probability_rise": (),
    "last_row": ("second", "layer", "head", "key"),
    "candidate_attention": ("second", "layer", "head", "pair"),
    "attention_advantage": ("second", "layer", "head"),
    "attention_rise": ("layer", "head"),
    "role": ("second", "pos"),
    "norm": ("head_of_layer_0", "pos"),
}
UNITS = {
    "probability": "probability",
    "probability_other": "probability",
    "advantage": "probability",
    "probability_rise": "probability",
    "role": "role",
    "norm": "length of z",
}


def _recency_values(rows: list[Row]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
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
    """Return last row less first of the last candidate; rows are independent."""
    rise = np.asarray(mean[-1, ..., -1] - mean[0, ..., -1])
    both = np.asarray(np.hypot(error[-1, ..., -1], error[0, ..., -1]))
    return (rise, both) if len(mean) > 1 else (rise * np.nan, both * np.nan)


def _examples(subject: Subject, rows: list[Row]) -> list[list[str]]:
    """Return the text of the first sequence of every row."""
    assert subject.source is not None
    found = []
    for row in rows:
        stream = row.layout.pairs[-1]
        ids = sequences(row.layout, subject.source, stream, range(1))[0]
        found.append(subject.decode(ids.tolist()))
    return found


def recency_patterns(subject: Subject, params: RecencyPatternsParams, progress: Progress) -> Result:
    """Run one row; see :class:`~poskernel_core.analyses.RecencyPatterns`.

    Raises:
        BadRequest: a head that is not there.
    """
    check_size(subject, params.length, MOST_CELLS)
    count = steps(progress, params.samples + measured(params))
    edit, _ = switched(subject, params, params.length, count)
    layout = pairs_layout(
        params.length, params.first, params.second, params.candidates, subject.start_token
    )
    patterns = [Moments() for _ in range(subject.model.geometry.n_layers)]
    for some, tokens in batches(subject, layout, params.samples, params.second):
        subject.model.run(tokens, edit, lambda layer, p: patterns[layer].add(p), keep=0)
        count(len(some))
    pattern, error = means(patterns)
    return Result(
        analysis="recency-patterns",
        params=params.model_dump(),
        values={"pattern": pattern.astype(np.float32), "role": np.array(layout.roles())},
        errors={"pattern": error.astype(np.float32)},
        axes={"pattern": ("layer", "head", "query", "key"), "role": ("pos",)},
        units={"pattern": SHARE, "role": "role"},
        labels={"role": ROLES},
    )
