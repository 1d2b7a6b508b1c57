"""One value a text: its sum and that of its square, so that its mean has an error over texts."""

from __future__ import annotations

import numpy as np
from torch import Tensor

__all__ = ["add_texts", "mean_of_texts", "widened"]


def widened(values: Tensor, like: Tensor) -> Tensor:
    """Return values on the device and in the precision of ``like``.

    They move first: on ``mps`` nothing can be float64.
    """
    return values.to(like.device).to(like.dtype)


def add_texts(sums: dict[str, Tensor], name: str, layer: int, values: Tensor) -> None:
    """Add the values ``[text, ...]`` of a batch of texts to ``NAME_sum`` and ``NAME_square``."""
    values = widened(values, sums[f"{name}_sum"])
    sums[f"{name}_sum"][layer] += values.sum(dim=0)
    sums[f"{name}_square"][layer] += values.square().sum(dim=0)


def mean_of_texts(
    sums: dict[str, np.ndarray], name: str, texts: int | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over texts and its standard error, of the shape of the sums.

    ``texts`` is how many texts had a value, one number or as many as there are values. The mean is
    NaN where none had, the error where fewer than two had.
    """
    count = np.maximum(texts, 1)
    mean = sums[f"{name}_sum"] / count
    variance = np.maximum(sums[f"{name}_square"] / count - mean**2, 0)
    error = np.sqrt(variance / np.maximum(np.asarray(texts) - 1, 1))
    there = np.asarray(texts)
    return np.where(there > 0, mean, np.nan), np.where(there > 1, error, np.nan)
