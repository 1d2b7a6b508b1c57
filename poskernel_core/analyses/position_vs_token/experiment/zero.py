"""Induction with the first ``[A]`` at position 0 and at position 1."""

import numpy as np

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.position_vs_token.spec import PositionZero, PositionZeroParams
from poskernel_core.analyses.random_tokens.experiment.rows import RowMeans, layers_of, means
from poskernel_core.analyses.random_tokens.experiment.sampled import batches, steps
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import pairs_layout
from poskernel_core.forward.edits import Edit

CASES = (
    "start token, [A] at position 1",
    "no start token, [A] at position 0",
    "no start token, [A] at position 1",
)
PLACES = ((True, 1), (False, 0), (False, 1))
"""For every case: whether there is a start token, and the position of the first ``[A]``."""


def position_zero(
    subject: ExperimentContext,
    statistics: Statistics,
    params: PositionZeroParams,
    progress: Progress,
) -> Result:
    """Run the three cases; see :class:`~poskernel_core.analyses.PositionZero`."""
    assert subject.source is not None
    lacking = subject.source.start is None
    count = steps(progress, (len(CASES) - lacking) * params.samples)
    rows = []
    for case, (start, first) in enumerate(PLACES):
        if start and lacking:
            continue
        layout = pairs_layout(params.length - 1 + first, first, first, 1, start)
        row = RowMeans(layout, subject.model.geometry.n_layers)
        for some, tokens in batches(subject, layout, params.samples, case, logits=1):
            row.run(subject, Edit(), tokens, some)
            count(len(some))
        rows.append(row)
    pairs = _numbers(rows, params.length)
    gap = 1 if lacking else 0
    return PositionZero.result(
        params,
        {name: _after_gap(mean, gap) for name, (mean, _) in pairs.items()},
        {name: _after_gap(error, gap) for name, (_, error) in pairs.items()},
        texts={"cases": CASES},
        provenance={"start_token": None},
    )


def _numbers(rows: list[RowMeans], length: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return means and errors by name, stacked over cases; there is one candidate."""
    probability, attention = (
        (mean[..., 0], error[..., 0])
        for mean, error in (
            means([row.probability for row in rows]),
            layers_of([row.candidates for row in rows]),
        )
    )
    return {
        "probability": probability,
        "probability_other": means([row.other for row in rows]),
        "last_row": layers_of([row.last for row in rows], length),
        "candidate_attention": attention,
    }


def _after_gap(array: np.ndarray, gap: int) -> np.ndarray:
    """Put NaN before an array of cases, for the ``gap`` cases that could not be run."""
    return np.concatenate([np.full_like(array[:gap], np.nan), array])
