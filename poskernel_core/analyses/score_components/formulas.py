"""Scores as sums over pairs of components, in NumPy and float64."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Bool, Float


def split(
    queries: Float[np.ndarray, "query_component d"],
    keys: Iterable[Float[np.ndarray, "_ key d"]],
    columns: Mapping[str, Float[np.ndarray, " key"]],
) -> dict[str, np.ndarray]:
    """Split the scores of one query, already scaled, by the components of query and key.

    ``keys`` are some components at a time. Each of ``columns`` weights the keys: one key, or a mean
    of several. Returns their tables ``[query_component key_component]`` by name, and the margins of
    every key.
    """
    whole, weights = queries.sum(axis=0), np.stack([*columns.values()])
    margins, weighted, total = [], [], np.float64(0)
    for part in keys:
        margins.append(part @ whole)
        weighted.append(weights @ part)
        total = total + part.sum(axis=0)
    tables = np.einsum("ad,bcd->cab", queries, np.concatenate(weighted), optimize=True)
    found = dict(zip(columns, tables, strict=True))
    return found | {"query_margin": queries @ total.T, "key_margin": np.concatenate(margins)}


def counted_keys(visible: Bool[np.ndarray, " key"], skip: int) -> Bool[np.ndarray, " key"]:
    """Return the keys over which a row's mean is taken: visible, not skipped, and not key 0.

    All visible keys if there are no others.
    """
    counted = visible & (np.arange(len(visible)) >= max(skip, 1))
    return counted if counted.any() else visible


def most_attended(attention: Float[np.ndarray, " key"]) -> int:
    """Return the key with most attention, key 0 aside where there is another."""
    first = int(attention[1:].any())
    return first + int(attention[first:].argmax())
