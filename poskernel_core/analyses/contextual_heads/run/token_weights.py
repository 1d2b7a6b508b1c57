"""The mean content score of every token, for one head and a fixed destination token."""

from __future__ import annotations

import numpy as np

from poskernel_core.analyses.bag.run.vocabulary import named_ends
from poskernel_core.analyses.base import Progress, Statistics, Subject
from poskernel_core.analyses.contextual_heads.denominators import TokenWeights, TokenWeightsParams
from poskernel_core.analyses.contextual_heads.run.content_weights import (
    content_scores,
    destination_kernels,
    destination_queries,
    quantiles,
)
from poskernel_core.analyses.contextual_heads.run.contents import (
    destination_windows,
    last_rows,
    token_counts,
    token_id,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.views import StatisticsView

__all__ = ["token_weights"]

Weights = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Mean score, its standard error, and number of places, ``[vocab]`` each."""


def token_weights(
    subject: Subject, statistics: Statistics, params: TokenWeightsParams, progress: Progress
) -> Result:
    """Score every token; see :class:`~poskernel_core.analyses.TokenWeights`.

    Raises:
        BadRequest: no such head, or the text is not one token of the model.
    """
    main = statistics["main"]
    geometry = subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    token = token_id(subject, params.token)
    progress(0, len(subject.windows))
    if layer == 0:
        mean, error, count = _first_layer(subject, main, params, token, head)
    else:
        mean, error, count = _in_texts(subject, main, params, token, (layer, head), progress)
    assert subject.source is not None
    ordinary = np.zeros(geometry.n_vocab, dtype=bool)
    ordinary[subject.source.pool] = True
    seen = np.flatnonzero((count >= params.min_count) & np.isfinite(mean) & ordinary)
    if not len(seen):
        raise BadRequest(f"No token occurs {params.min_count} times in the windows: ask for fewer.")
    extremes, words = named_ends(subject.decode, seen, mean[seen], params.top_k)
    return TokenWeights.result(
        params,
        {"log_weight": mean[seen], "count": count[seen], **extremes},
        {"log_weight": error[seen]},
        coordinates={"token": seen},
        texts=words,
    )


def _first_layer(
    subject: Subject, main: StatisticsView, params: TokenWeightsParams, token: int, head: int
) -> Weights:
    """Score all tokens at a few places; count how often they occur in the windows."""
    queries = destination_queries(subject, token)
    kernel = destination_kernels(queries, main)[head : head + 1, params.query]
    first = max(params.skip, int(subject.start_token))
    places = quantiles(kernel, first)
    scores = content_scores(subject, main, queries[:, params.query], places)[:, head].numpy()
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(places))
    return scores.mean(axis=0), error, token_counts(subject)


def _in_texts(
    subject: Subject,
    main: StatisticsView,
    params: TokenWeightsParams,
    token: int,
    cell: tuple[int, int],
    progress: Progress,
) -> Weights:
    """Score tokens where they stand in the windows."""
    windows = destination_windows(subject.windows[: params.first_windows], params.query, token)
    sums = np.zeros((3, subject.model.geometry.n_vocab))
    for some, rows in last_rows(subject, main, windows, params.skip, (cell[0],)):
        first, score = rows[0].first, rows[0].log_weight[:, cell[1], :-1].numpy()
        tokens = windows[some.start : some.stop, first : params.query]
        for place, power in enumerate((0, 1, 2)):
            np.add.at(sums[place], tokens, score**power)
        progress(some.stop, len(windows))
    count, total, squares = sums
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    variance = np.maximum(squares - count * mean**2, 0) / np.maximum(count - 1, 1)
    error = np.sqrt(np.divide(variance, count, out=np.full_like(total, np.nan), where=count > 1))
    return mean, error, count.astype(np.int64)
