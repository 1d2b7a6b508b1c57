"""Variances of the scores of all keys at all places."""

import numpy as np
from jaxtyping import Float

from poskernel_core.statistics.moments import Numbers

SHARES = ("place_share", "content_share", "both_share", "covariance_share")

NOTHING = 1e-12
"""A variance below this fraction of the mean squares of its factors is rounding error."""


def variances(
    turned: Float[np.ndarray, "*#batch place d"], keys: Float[np.ndarray, "*#batch key d"]
) -> Float[np.ndarray, "part ..."]:
    """Return the parts of the variance of the table ``G(i, j) = turned[i] . keys[j]``.

    They are place, content, both together, twice the covariance of place and content on the
    diagonal, and the product of the mean squares of both factors. A query that no rotation turns
    has a single place.
    """
    of_turned, of_keys = (each.mean(axis=-2, keepdims=True) for each in (turned, keys))
    size = (turned**2).sum(axis=-1).mean(axis=-1) * (keys**2).sum(axis=-1).mean(axis=-1)
    turned, keys = turned - of_turned, keys - of_keys
    place, content = ((turned * of_keys).sum(axis=-1), (keys * of_turned).sum(axis=-1))
    both = (_covariance(turned) * _covariance(keys)).sum(axis=(-2, -1))
    squares = (np.mean(each**2, axis=-1) for each in (place, content))
    return np.stack([*squares, both, 2 * (place * content).mean(axis=-1), size])


def _covariance(centred: Float[np.ndarray, "*batch row d"]) -> Float[np.ndarray, "*batch d d"]:
    return np.asarray(centred.mT @ centred / centred.shape[-2])


def shares(sums: Float[np.ndarray, "part ..."]) -> Numbers:
    """Return the shares from sums of the parts of :func:`variances`; NaN if scores are equal."""
    total = sums[:3].sum(axis=0)
    total = np.where(total > NOTHING * sums[4], total, np.nan)
    return {name: part / total for name, part in zip(SHARES, sums, strict=False)}
