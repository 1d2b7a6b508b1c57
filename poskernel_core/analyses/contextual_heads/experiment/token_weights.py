"""The mean content score of every token, for one head and a fixed destination token."""

import numpy as np

from poskernel_core.analyses.bag.experiment.vocabulary import named_ends
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.denominators import TokenWeights, TokenWeightsParams
from poskernel_core.analyses.contextual_heads.experiment import contents
from poskernel_core.analyses.contextual_heads.experiment.content_weights import (
    content_scores,
    destination_kernels,
    destination_queries,
    mean_key_scores,
    quantiles,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import first_in_equal_groups, groups_of, kept_windows
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.views import without

Weights = tuple[np.ndarray, np.ndarray]
"""Mean scores ``[kept, vocab]``, of all windows and without each group; counts ``[vocab]``."""


def token_weights(subject: ExperimentContext, params: TokenWeightsParams) -> Result:
    """Score every token; see :class:`contextual_heads.denominators.TokenWeights`."""
    geometry = subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    token = contents.token_id(subject, params.token)
    subject.progress(0, len(subject.windows))
    if layer == 0:
        means, count = _first_layer(subject, params, token, head)
    else:
        means, count = _in_texts(subject, params, token, (layer, head))
    mean = means[0]
    assert subject.source is not None
    ordinary = np.zeros(geometry.n_vocab, dtype=bool)
    ordinary[subject.source.pool] = True
    seen = np.flatnonzero((count >= params.min_count) & np.isfinite(mean) & ordinary)
    if not len(seen):
        raise BadRequest(f"No token occurs {params.min_count} times in the windows: ask for fewer.")
    extremes, words = named_ends(subject.decode, seen, mean[seen], params.top_k)
    return TokenWeights.estimated(
        subject,
        params,
        ({"log_weight": row[seen]} for row in means),
        {"count": count[seen], **extremes},
        coordinates={"token": seen},
        texts=words,
    )


def _first_layer(
    subject: ExperimentContext,
    params: TokenWeightsParams,
    token: int,
    head: int,
) -> Weights:
    """Score all tokens at a few places; count how often they occur in the windows.

    Texts matter only through the mean keys, which shift the scores of all tokens equally.
    """
    queries = destination_queries(subject, token)
    kernel = destination_kernels(queries, subject.main)[head : head + 1, params.query]
    first = max(params.skip, int(subject.start_token))
    places = quantiles(kernel, first)
    scores = content_scores(subject, queries[:, params.query], places)[:, head].numpy()
    groups = groups_of(len(subject.windows))
    main = subject.main
    views = [main, *(without(main, group) for group in range(groups))]
    at_mean = [mean_key_scores(view, queries[:, params.query], places)[:, head] for view in views]
    moved = np.array([float((view_scores - at_mean[0]).mean()) for view_scores in at_mean])
    return scores.mean(axis=0) - moved[:, None], contents.token_counts(subject)


def _in_texts(
    subject: ExperimentContext,
    params: TokenWeightsParams,
    token: int,
    cell: tuple[int, int],
) -> Weights:
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    windows = contents.destination_windows(texts, params.query, token)
    groups, size = groups_of(len(windows)), subject.model.geometry.n_vocab
    kept = kept_windows(len(windows), groups)
    count, total = np.zeros((2, 1 + groups, size))
    for some, rows in contents.last_rows(subject, windows, params.skip, (cell[0],), groups):
        scores = rows[0].log_weight[:, :, cell[1], :-1].numpy()
        tokens = windows[some.start : some.stop, rows[0].first : params.query]
        for place, here in enumerate(kept[:, some.start : some.stop]):
            ids, score = tokens[here].ravel(), scores[place, here].ravel()
            count[place] += np.bincount(ids, minlength=size)
            total[place] += np.bincount(ids, score, minlength=size)
        subject.progress(some.stop, len(windows))
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean, count[0].astype(np.int64)
