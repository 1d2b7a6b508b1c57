"""Copying scores, in PyTorch-free arithmetic of small matrices."""

import numpy as np
from jaxtyping import Float, Int

HIGHEST = 10
"""Tokens that count as raised most."""


def extremes(numbers: Float[np.ndarray, " token"]) -> Int[np.ndarray, " word"]:
    """Return the places of the largest and of the smallest numbers, in descending order."""
    order = np.argsort(-numbers, kind="stable")
    few = min(HIGHEST, len(order) // 2)
    return np.concatenate([order[:few], order[len(order) - few :]])


def eigenvalue_score(matrix: Float[np.ndarray, "d d"]) -> float:
    """Return the sum of the eigenvalues' real parts over the sum of their sizes; NaN if all are 0.

    Source: "A Mathematical Framework for Transformer Circuits" (Elhage et al., 2021).
    """
    found = np.linalg.eigvals(matrix)
    size = float(np.abs(found).sum())
    return float(found.real.sum()) / size if size > 0 else np.nan
