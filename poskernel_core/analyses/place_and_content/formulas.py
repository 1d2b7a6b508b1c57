"""Variances of the scores of all keys at all places."""

import numpy as np
from jaxtyping import Float

SHARES = ("place_share", "content_share", "both_share", "covariance_share")

NOTHING = 1e-12
"""A variance below this fraction of the squared lengths of query and key is rounding error."""


def variances(
    queries: Float[np.ndarray, "*batch head 2 d"],
    turns: Float[np.ndarray, "*#batch place 2 d"],
    keys: Float[np.ndarray, "*batch key d"],
) -> Float[np.ndarray, "part *batch head"]:
    """Return the parts of the variance of the scores ``G(i, j) = U_i . k_j`` of a query.

    A query consists of its numbers and of these a quarter turn back, ``turns`` of the cosines and
    sines of each dimension at each place: ``U_i = q cos_i + q' sin_i``. So the covariance of the
    ``U_i`` follows from that of the turns, which is the same for all queries.

    The parts are place, content, both together, twice the covariance of place and content on the
    diagonal, and the product of the squared lengths.
    """
    query, turn = (array.reshape(*array.shape[:-2], -1) for array in (queries, turns))
    mean_turn, mean_key = (array.mean(axis=-2, keepdims=True) for array in (turn, keys))
    lengths = (query**2).sum(axis=-1) * (keys**2).sum(axis=-1).mean(axis=-1)[..., None]
    turn, keys = turn - mean_turn, keys - mean_key
    mean_turned = (query * mean_turn).reshape(queries.shape).sum(axis=-2)
    place = (query * np.tile(mean_key, 2)) @ turn.mT  # [..., head, place]
    content = mean_turned @ keys.mT
    covariances = _covariance(turn) * np.tile(_covariance(keys), (2, 2))
    both = ((query @ covariances) * query).sum(axis=-1)
    squares = ((scores**2).mean(axis=-1) for scores in (place, content))
    return np.stack([*squares, both, 2 * (place * content).mean(axis=-1), lengths])


def _covariance(centred: Float[np.ndarray, "*batch row d"]) -> Float[np.ndarray, "*batch d d"]:
    return np.asarray(centred.mT @ centred / centred.shape[-2])


def shares(sums: Float[np.ndarray, "part ..."]) -> dict[str, np.ndarray]:
    """Return the shares from sums of the parts of :func:`variances`; NaN if scores are equal."""
    total = sums[:3].sum(axis=0)
    total = np.where(total > NOTHING * sums[4], total, np.nan)
    return {name: part / total for name, part in zip(SHARES, sums, strict=False)}
