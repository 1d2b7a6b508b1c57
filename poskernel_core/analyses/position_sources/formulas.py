"""Shares of the direct writers in a head's positional score, on NumPy arrays.

The positional score ``a(n,i) = sum_c a_c(n,i)`` is a sum over components ``c`` of the residual
stream. The share of a component is ``E_n Cov_K(a_c, a) / E_n Var_K(a)``, with keys weighted by the
kernel. A covariance is linear in the component's mean keys ``m_c``. So it is a product of ``m_c``
with one :class:`Gradient`, which all components share.

Noise in the mean keys of few texts would count as position. So all products are between different
groups of texts: ``a_c`` from one group, ``a`` from another, the query from a third.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from poskernel_core.analyses.kernels.formulas import total_variation
from poskernel_core.common.attention import ScoreRule

FEWEST = 4
"""Fewest groups: three remain when one is left out."""

NOISY = 0.5
"""Largest share of noise in ``Var(a)`` with which shares are given."""

POSITIONAL = 0.05
"""Smallest share of position in the score variance with which shares are given."""


@dataclass(frozen=True)
class Reading:
    """What one head reads, by group of texts.

    Attributes:
        queries: ``[group, row, d]``; a row is a text and a query position.
        positions: the position of every row, ``[row]``.
        keys: mean keys, ``[group, key, d]``.
        rule: the layer's rule of scores, for this head alone.
        skip: first keys left out.
    """

    queries: Float[np.ndarray, "group row d"]
    positions: np.ndarray
    keys: Float[np.ndarray, "group key d"]
    rule: ScoreRule
    skip: int

    @property
    def hidden(self) -> Bool[np.ndarray, "row key"]:
        """Which keys a row does not see, or skips."""
        return hidden_keys(self.rule, self.positions, self.keys.shape[1], self.skip)

    @property
    def bias(self) -> Float[np.ndarray, "row key"]:
        """ALiBi's part of the scores; 0 without."""
        shape = (1, len(self.positions), self.keys.shape[1])
        if self.rule.slopes is None:
            return np.zeros(shape[1:])
        return np.asarray(self.rule.bias(self.positions, slice(0, shape[2]), np.zeros(1))[0])

    def products(self, keys: Float[np.ndarray, "*batch key d"]) -> Float[np.ndarray, "..."]:
        """Return the scaled products of all queries with keys, ``[*batch, group, row, key]``."""
        queries = self.rule.scale * self.queries.astype(np.float64)
        return np.asarray(queries @ keys.astype(np.float64).swapaxes(-1, -2)[..., None, :, :])

    def kernel(self, products: Float[np.ndarray, "*batch row key"]) -> np.ndarray:
        """Return the kernels of products: with cap and bias, over the visible keys."""
        scores = np.where(self.hidden, -np.inf, self.rule.capped(products) + self.bias)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def triples(kept: Bool[np.ndarray, " group"]) -> Float[np.ndarray, "group group group"]:
    """Return the weights of products of three different groups, all of them kept."""
    apart = 1.0 - np.eye(len(kept))
    weights = apart[:, :, None] * apart[:, None, :] * apart[None]
    weights = weights * kept[:, None, None] * kept[None, :, None] * kept
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class Gradient:
    """How ``E_n Cov_K(a_c, a)`` depends on a component, with all groups and without each.

    Attributes:
        by_keys: its derivative by the component's mean keys, ``[kept, group, key, d]``.
        by_bias: the covariance of ALiBi's bias with ``a``.
        total: ``E_n Var_K(a)`` without noise.
        plain: ``E_n Var_K(a)`` of the mean keys of all groups, with their noise.
    """

    by_keys: Float[np.ndarray, "kept group key d"]
    by_bias: Float[np.ndarray, " kept"]
    total: Float[np.ndarray, " kept"]
    plain: Float[np.ndarray, " kept"]

    def of(
        self, group: int, keys: Float[np.ndarray, "component key d"]
    ) -> Float[np.ndarray, "kept component"]:
        """Return what one group's mean keys add to the shares of components."""
        slopes = self.by_keys[:, group].reshape(len(self.total), -1)
        flat = keys.reshape(len(keys), -1).astype(slopes.dtype)
        return _ratio((slopes @ flat.T).astype(np.float64), self.total[:, None])

    @property
    def bias_share(self) -> Float[np.ndarray, " kept"]:
        """The share of ALiBi's bias; 0 without."""
        return _ratio(self.by_bias, self.total)

    @property
    def noise(self) -> Float[np.ndarray, " kept"]:
        """The share of ``Var(a)`` that is noise."""
        return 1 - _ratio(self.total, self.plain)


def _ratio(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the ratio; NaN where there is no variance at all."""
    return np.divide(part, total, out=np.full(part.shape, np.nan), where=total != 0)


def gradient(
    reading: Reading,
    weights: Sequence[Float[np.ndarray, "group row key"]],
    kept: Sequence[Bool[np.ndarray, " group"]],
) -> Gradient:
    """Return the gradient for some choices of groups, each with its weights of the keys.

    A single array of ``weights`` serves all choices.
    """
    groups, rows, width = reading.queries.shape
    queries = (reading.rule.scale * reading.queries / rows).astype(np.float32)
    scores, bias = _centred(reading)
    every = scores.sum(axis=0)
    parts, pull, pulled, biased = [], np.empty_like(scores), np.empty(0), np.zeros((groups, groups))
    for place, choice in enumerate(kept):
        if place < len(weights):
            weight = weights[place].astype(np.float32)
            np.subtract(scores, (weight * scores).sum(axis=-1, keepdims=True), out=pull)
            pull *= weight
            pulled = (pull.swapaxes(-1, -2) @ queries).reshape(groups**2, -1)
            if bias is not None:
                biased = np.einsum("hork,rk->ho", pull, bias, dtype=np.float64) / rows
        apart = triples(choice)
        slopes = (apart.reshape(groups, -1) @ pulled).reshape(groups, -1, width)
        of_bias = float((apart.sum(axis=0) * biased).sum())
        total = float((slopes * reading.keys).sum()) + of_bias
        mean = ((every - scores[~choice].sum(axis=0)) / choice.sum())[choice]
        plain = variance(mean.astype(np.float64), weight[choice]).mean()
        parts.append((slopes.astype(np.float32), of_bias, total, plain))
    return Gradient(*(np.array(column) for column in zip(*parts, strict=True)))


def _centred(
    reading: Reading,
) -> tuple[Float[np.ndarray, "group own row key"], Float[np.ndarray, "row key"] | None]:
    """Return the positional scores by each group's mean keys, and ALiBi's part, if any.

    Each row is less its mean over the visible keys, which changes no covariance.
    """
    even = equal_weights(reading.rule, reading.positions, reading.keys.shape[1], reading.skip)
    groups = len(reading.keys)
    scores = np.empty((groups, groups, *even.shape), np.float32)
    for group, keys in enumerate(reading.keys):
        own = reading.products(keys) + reading.bias
        scores[group] = own - (even * own).sum(axis=-1, keepdims=True)
    if reading.rule.slopes is None:
        return scores, None
    bias = reading.bias
    return scores, bias - (even * bias).sum(axis=-1, keepdims=True)


def variance(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the variance over keys, the last axis, with weights that add up to 1."""
    apart = scores - (weights * scores).sum(axis=-1, keepdims=True)
    return np.asarray((weights * apart**2).sum(axis=-1))


def hidden_keys(
    rule: ScoreRule, positions: np.ndarray, length: int, skip: int
) -> Bool[np.ndarray, "row key"]:
    """Return which keys the queries at some positions do not see, or skip."""
    keys = np.arange(length)
    return np.asarray(rule.is_hidden(positions[:, None], keys) | (keys < skip))


def equal_weights(
    rule: ScoreRule, positions: np.ndarray, length: int, skip: int
) -> Float[np.ndarray, "row key"]:
    """Return equal weights of the keys that the queries at some positions see."""
    seen = ~hidden_keys(rule, positions, length, skip)
    return np.asarray(seen / seen.sum(axis=-1, keepdims=True))


def effects(
    reading: Reading,
    run_keys: Sequence[Float[np.ndarray, "key d"]],
    keys: Float[np.ndarray, "group component key d"],
    kept: Sequence[Bool[np.ndarray, " group"]],
    progress: Callable[[int, int], None],
) -> Float[np.ndarray, "kept part"]:
    """Return ``TV(K, K without c)`` of each component, a mean over the rows, for choices of groups.

    ``run_keys`` are the mean keys of ``K`` for each choice. With ALiBi, the last component is its
    bias.
    """
    products = [reading.products(mean_keys) for mean_keys in run_keys]
    kernels = [reading.kernel(product) for product in products]
    distances = []

    def moved(others: Iterable[np.ndarray]) -> list[float]:
        every = zip(kernels, others, kept, strict=True)
        return [float(total_variation(one, other)[some].mean()) for one, other, some in every]

    for place in range(keys.shape[1]):
        progress(place, keys.shape[1])
        part = reading.products(keys[:, place])
        means = [part[choice].mean(axis=0) for choice in kept]
        left = (product - mean for product, mean in zip(products, means, strict=True))
        distances.append(moved(map(reading.kernel, left)))
    if reading.rule.slopes is not None:
        flat = replace(reading, rule=replace(reading.rule, slopes=None))
        distances.append(moved(map(flat.kernel, products)))
    return np.array(distances).T


def by_offset(
    reading: Reading,
    kernel: Float[np.ndarray, "group row key"],
    keys: Float[np.ndarray, "group component key d"],
    kept: Sequence[Bool[np.ndarray, " group"]],
    offsets: int,
) -> Float[np.ndarray, "kept query part offset"]:
    """Return the mean scores of components at the first offsets, less their means over the kernel.

    These are weighted by the mean kernel of the query position. Queries and mean keys are of
    different groups. NaN where a key is not visible. With ALiBi, the
    last component is its bias.
    """
    groups, count = keys.shape[:2]
    queries = reading.rule.scale * reading.queries.astype(np.float64)
    positions = np.unique(reading.positions)
    bias = reading.rule.slopes is not None
    mean_scores = np.full((len(kept), len(positions), count + bias, offsets), np.nan)
    for place, n in enumerate(positions):
        low = reading.rule.first_visible(int(n), reading.skip)
        near = slice(max(low, n - offsets + 1), n + 1)
        size = near.stop - near.start
        rows = reading.positions == n
        weights = kernel[:, rows, low : n + 1].mean(axis=(0, 1))
        mean = np.einsum("gckd,k->gcd", keys[:, :, low : n + 1], weights, optimize=True)[:, :, None]
        query = queries[:, rows].mean(axis=1)
        part = (keys[:, :, near] - mean)[:, :, ::-1].astype(np.float64)
        table = np.einsum("od,gckd->ogck", query, part, optimize=True).reshape(groups**2, -1)
        for choice, one in enumerate(kept):
            pairs = np.outer(one, one) * (1 - np.eye(groups))
            scores = pairs.ravel() @ table / pairs.sum()
            mean_scores[choice, place, :count, :size] = scores.reshape(count, size)
        if bias:
            row = reading.bias[np.flatnonzero(rows)[0]]
            mean_scores[:, place, count, :size] = (row - row[low : n + 1] @ weights)[near][::-1]
    return mean_scores
