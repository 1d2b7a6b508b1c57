"""The mean content score of every token, for one head and a fixed destination token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.config import parse_cell
from poskernel_core.experiments.contents import destination_windows, token_id, watch_rows
from poskernel_core.experiments.vocabulary import named_ends
from poskernel_core.views import StatisticsView

if TYPE_CHECKING:
    from poskernel_core.analyses.denominators import TokenWeightsParams

__all__ = ["token_weights", "vocabulary_windows"]


def vocabulary_windows(subject: Subject, length: int, times: int) -> np.ndarray:
    """Return windows that together hold every ordinary token ``times`` times, in random order.

    Behind a start token where the run has one; the last window is filled up from the beginning.
    """
    assert subject.source is not None
    generator = np.random.default_rng(subject.source.seed)
    pool = subject.source.pool
    order = np.concatenate([generator.permutation(pool) for _ in range(times)])
    first = [] if not subject.start_token else [subject.source.start]
    body = length - len(first)
    padded = np.resize(order, -(-len(order) // body) * body).reshape(-1, body)
    head = np.full((len(padded), len(first)), first)
    return np.concatenate([head, padded], axis=1).astype(np.int64)


def token_weights(
    subject: Subject, main: StatisticsView, params: TokenWeightsParams, progress: Progress
) -> Result:
    """Run the windows; see :class:`~poskernel_core.analyses.TokenWeights`.

    Raises:
        BadRequest: no such head, or the text is not one token of the model.
    """
    geometry = subject.model.geometry
    layer, head = parse_cell(params.cell, geometry.n_layers, geometry.n_heads)
    texts = subject.windows
    if layer == 0:
        texts = vocabulary_windows(subject, params.query + 1, params.fewest)
    windows = destination_windows(texts, params.query, token_id(subject, params.token))
    sums = np.zeros((3, geometry.n_vocab))
    progress(0, len(windows))
    for some, rows in watch_rows(subject, main, windows, params.skip, (layer,)):
        first, score = rows[0].first, rows[0].log_weight[:, head, :-1].numpy()
        tokens = windows[some.start : some.stop, first : params.query]
        for place, power in enumerate((0, 1, 2)):
            np.add.at(sums[place], tokens, score**power)
        progress(some.stop, len(windows))
    return _result(subject, params, sums)


def _result(subject: Subject, params: TokenWeightsParams, sums: np.ndarray) -> Result:
    seen = np.flatnonzero(sums[0] >= params.fewest)
    count, total, squares = sums[:, seen]
    mean = total / count
    variance = np.maximum(squares - count * mean**2, 0) / np.maximum(count - 1, 1)
    error = np.where(count > 1, np.sqrt(variance / count), np.nan)
    return Result(
        analysis="token-weights",
        params=params.model_dump(),
        values={"log_weight": mean, "count": count.astype(np.int64)},
        axes={"log_weight": ("token",), "count": ("token",)},
        units={"log_weight": "nats", "count": "places"},
        errors={"log_weight": error},
        coordinates={"token": seen},
        provenance={"listed": named_ends(subject.decode, seen, mean, params.listed)},
    )
