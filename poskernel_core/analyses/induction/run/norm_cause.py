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
OF_PAIRS = (
    "probability",
    "advantage",
    "probability_rise",
    "candidate_attention",
    "attention_advantage",
    "attention_rise",
)
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
    pairs, tokens = [], []
    for place, flatten in enumerate((False, True)):
        asked = RecencyParams(**shared, flatten=flatten)
        recency = induction_recency(subject, statistics, asked, _part(progress, 2 * place))
        pairs.append(recency.only(*OF_PAIRS))
        alone = RandomAttentionParams(**own, flatten=flatten)
        rows = random_attention(subject, statistics, alone, _part(progress, 2 * place + 1))
        tokens.append(rows.only("slope"))
    numbers = _numbers(*(Result.join(found, "norms", RUNS) for found in (pairs, tokens)))
    values = {name: mean for name, (mean, _) in numbers.items()}
    errors = {name: error for name, (_, error) in numbers.items()}
    for name, (mean, error) in numbers.items():
        values[f"{name}_change"] = np.asarray(mean[1] - mean[0])
        errors[f"{name}_change"] = np.asarray(np.hypot(*error))
    return NormCause.result(params, values, errors, texts={"runs": RUNS})


def _part(progress: Progress, number: int) -> Progress:
    """Return the progress of one of the four parts."""

    def report(done: int, total: int) -> None:
        progress(round(STEPS * (number + done / max(total, 1))), 2 * len(RUNS) * STEPS)

    return report


def _numbers(recency: Result, rows: Result) -> Numbers:
    """Return the numbers of both runs, ``[norms, ...]`` each, from results joined along them."""
    values, errors = recency.values, recency.errors
    together = np.sqrt((errors["candidate_attention"] ** 2).sum(axis=-1))
    found = {
        "probability": (values["probability"][..., -1], errors["probability"][..., -1]),
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
    spread = np.sqrt((error**2).sum(axis=1)) / mean.shape[1]
    return np.asarray(mean.mean(axis=1)), np.asarray(spread)
