"""The recency of induction with layer 0's norms as they are, and with those norms made flat."""

from __future__ import annotations

import numpy as np

from poskernel_core.analyses.base import Progress, Statistics, Subject
from poskernel_core.analyses.induction.norm_cause import NormCause, NormCauseParams
from poskernel_core.analyses.induction.run.recency import induction_recency
from poskernel_core.analyses.induction.spec import RecencyParams
from poskernel_core.analyses.random_tokens.run.random_rows import random_attention
from poskernel_core.analyses.random_tokens.spec import RandomAttentionParams
from poskernel_core.common.result import Result

__all__ = ["norm_cause"]

RUNS = ("norms as they are", "norms flat")
PER_HEAD = ("layer", "head")
STEPS = 1000
"""Steps of each of the four parts, for the progress."""
Numbers = dict[str, tuple[np.ndarray, np.ndarray]]


def norm_cause(
    subject: Subject, statistics: Statistics, params: NormCauseParams, progress: Progress
) -> Result:
    """Run all twice; see :class:`~poskernel_core.analyses.NormCause`."""
    shared = params.model_dump(exclude={"random_length", "trend_from"})
    own = {name: shared[name] for name in RandomAttentionParams.model_fields if name in shared}
    own |= {"length": params.random_length, "trend_from": params.trend_from}
    found = []
    for place, flatten in enumerate((False, True)):
        pairs = RecencyParams(**shared, flatten=flatten)
        recency = induction_recency(subject, statistics, pairs, _part(progress, 2 * place))
        tokens = RandomAttentionParams(**own, flatten=flatten)
        rows = random_attention(subject, statistics, tokens, _part(progress, 2 * place + 1))
        found.append(_numbers(recency, rows))
    return _result(params, *found)


def _part(progress: Progress, number: int) -> Progress:
    """Return the progress of one of the four parts."""

    def report(done: int, total: int) -> None:
        progress(round(STEPS * (number + done / max(total, 1))), 2 * len(RUNS) * STEPS)

    return report


def _numbers(recency: Result, rows: Result) -> Numbers:
    values, errors = recency.values, recency.errors
    together = np.sqrt((errors["candidate_attention"] ** 2).sum(axis=-1))
    found = {
        "probability": (values["probability"][:, -1], errors["probability"][:, -1]),
        "probability_advantage": (values["advantage"], errors["advantage"]),
        "attention": (values["candidate_attention"].sum(axis=-1), together),
        "attention_advantage": (values["attention_advantage"], errors["attention_advantage"]),
    }
    found = {name: _over_rows(*pair) for name, pair in found.items()}
    for name in ("probability_rise", "attention_rise"):
        found[name] = (values[name], errors[name])
    return found | {"slope": (rows.values["slope"][..., -1], rows.errors["slope"][..., -1])}


def _over_rows(mean: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over rows, which are independent, and its error."""
    spread = np.sqrt((error**2).sum(axis=0)) / len(mean)
    return np.asarray(mean.mean(axis=0)), np.asarray(spread)


def _result(params: NormCauseParams, clean: Numbers, flat: Numbers) -> Result:
    values: dict[str, np.ndarray] = {}
    errors: dict[str, np.ndarray] = {}
    for name, (mean, error) in clean.items():
        flat_mean, flat_error = flat[name]
        change = f"{name}_change"
        values |= {name: np.stack([mean, flat_mean]), change: np.asarray(flat_mean - mean)}
        errors[name] = np.stack([error, flat_error])
        errors[change] = np.asarray(np.hypot(error, flat_error))
    return NormCause.result(params, values, errors, provenance={"runs": RUNS})
