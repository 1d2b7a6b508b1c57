"""Run random sequences: mean attention, its trend along the keys, and norms of head outputs."""

from collections.abc import Iterator

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.random_tokens.experiment import sampled
from poskernel_core.analyses.random_tokens.spec import RandomAttention, RandomAttentionParams
from poskernel_core.common.jackknife import jackknife
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import random_layout
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.observers import Batch

MAX_CELLS = 2**23
MIN_KEYS = 3
MIN_FOR_P = 10
"""Fewest keys for which a t distribution approximates the rank correlation's distribution."""


def random_attention(subject: ExperimentContext, params: RandomAttentionParams) -> Result:
    """Run the sequences; see :class:`spec.RandomAttention`."""
    length, layers = params.length, subject.model.geometry.n_layers
    sampled.check_size(subject, length, MAX_CELLS)
    count = sampled.steps(subject, params.samples + sampled.measured(params))
    edit, _ = sampled.ablations(subject, params, length, count)
    layout = random_layout(length, subject.start_token)
    norms, trends = sampled.Norms(), _Trends(layers, params.trend_from)
    for some, tokens in sampled.batches(subject, layout, params.samples, 0, count=count):
        subject.model.run(tokens, edit, [norms, trends], samples=some, keep=0)
    return _result(params, trends.numbers(), norms)


class _Trends(sampled.PatternMeans):
    """Mean patterns of every layer, and mean slopes of the patterns' rows, over edited passes."""

    def __init__(self, layers: int, trend_from: int) -> None:
        super().__init__(layers, self._parts)
        self._first = trend_from
        self._weights: dict[int, Tensor] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer not in self._weights:
            weights = slope_weights(sampled.visible_keys(call), self._first)
            self._weights[call.layer] = torch.from_numpy(weights)

    def _parts(self, block: PatternBlock) -> dict[str, Tensor]:
        pattern = block.pattern.cpu().double()
        slope = (pattern * self._weights[block.layer]).sum(dim=-1)
        return {"pattern": pattern, "slope": slope}


def _result(
    params: RandomAttentionParams, estimates: sampled.MeansAndErrors, norms: sampled.Norms
) -> Result:
    (pattern, pattern_error), (slope, slope_error) = estimates["pattern"], estimates["slope"]
    ranks = [
        rank_correlations(rows, norms.visible[layer], params.trend_from)
        for layer, rows in enumerate(pattern)
    ]
    seen = norms.visible[0]
    norm, norm_error = sampled.norms_of(norms.squares)
    values = {
        "pattern": pattern.astype(np.float32),
        "slope": slope,
        "rank_correlation": np.stack([correlation for correlation, _ in ranks]),
        "p_value": np.stack([p_value for _, p_value in ranks]),
        "norm": norm,
        "norm_exponent": exponents(norm, seen),
        "visible_keys": seen,
    }
    errors = {
        "pattern": pattern_error.astype(np.float32),
        "slope": slope_error,
        "norm": norm_error,
        "norm_exponent": jackknife(exponents(np.sqrt(norms.groups.without_each()), seen)),
    }
    return RandomAttention.result(params, values, errors)


def _trend_keys(visible: np.ndarray, first: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each query with enough keys for a trend, and these keys: visible, before the query."""
    for query, count in enumerate(visible):
        keys = np.arange(max(first, query + 1 - int(count)), query)
        if len(keys) >= MIN_KEYS:
            yield query, keys


def slope_weights(visible: np.ndarray, first: int) -> np.ndarray:
    """Return ``w [query, key]`` such that ``sum_i w(n,i) A(n,i)`` is the slope of row ``n``.

    The slope is fitted by least squares over the visible keys ``first .. n-1``; rows with fewer
    than three such keys are NaN. ``visible [query]`` counts the keys that each query sees.
    """
    weights = np.full((len(visible), len(visible)), np.nan)
    for query, keys in _trend_keys(visible, first):
        weights[query] = 0.0
        weights[query, keys] = (keys - keys.mean()) / ((keys - keys.mean()) ** 2).sum()
    return weights


def rank_correlations(
    pattern: np.ndarray, visible: np.ndarray, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return Spearman's correlation of rows ``[..., query, key]`` with the key, and its p-value.

    Keys are those of :func:`slope_weights`; constant rows and rows with too few keys are NaN, and
    so are p-values from fewer than ten keys.
    """
    correlation = np.full(pattern.shape[:-1], np.nan)
    p_value = np.full(pattern.shape[:-1], np.nan)
    for query, keys in _trend_keys(visible, first):
        ranks = stats.rankdata(pattern[..., query, keys], axis=-1) - (len(keys) + 1) / 2
        steps_away = keys - keys.mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            coefficient = ranks @ steps_away
            coefficient /= np.sqrt((ranks**2).sum(axis=-1) * (steps_away**2).sum())
            degrees = len(keys) - 2
            t = coefficient * np.sqrt(degrees / (1 - np.minimum(coefficient**2, 1)))
        correlation[..., query] = coefficient
        if len(keys) >= MIN_FOR_P:
            p_value[..., query] = 2 * stats.t.sf(np.abs(t), degrees)
    return correlation, p_value


def exponents(norms: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Return the exponent of ``norms [..., pos]`` as a power of ``visible [pos]`` tokens.

    It is the slope of a least-squares line through the logarithms, from position 1 on; NaN where a
    norm is zero.
    """
    tokens = np.log(visible[1:])
    tokens -= tokens.mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (np.log(norms[..., 1:]) * tokens).sum(axis=-1) / (tokens**2).sum()
    return np.where(np.isfinite(slopes), slopes, np.nan)
