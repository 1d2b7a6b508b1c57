"""Streaming means and standard errors over samples, and leave-one-group-out replicates."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.groups import GROUPS, kept_windows

__all__ = ["GROUPS", "Groups", "Moments", "Numbers", "means_of", "of_sums", "replicated"]

Numbers = dict[str, np.ndarray]
"""Arrays by name."""


class Moments:
    """Streaming mean and standard error over samples, in float64; samples are not kept.

    Batches are merged by the pairwise update of Chan, Golub and LeVeque (1979), which loses no
    digits if the mean is far from zero.
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean = torch.zeros((), device="cpu")
        self._squares = torch.zeros((), device="cpu")

    def add(self, values: Tensor) -> None:
        """Add the samples of a batch, ``[text, ...]``."""
        values = values.detach().cpu().double()
        count, mean = len(values), values.mean(dim=0)
        squares = (values - mean).square_().sum(dim=0)
        total = self.count + count
        step = mean - self._mean
        self._squares = self._squares + squares + step**2 * (self.count * count / total)
        self._mean = self._mean + step * (count / total)
        self.count = total

    @property
    def mean(self) -> np.ndarray:
        """Mean over all samples so far."""
        return self._mean.numpy()

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean; NaN for fewer than two samples."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        return np.asarray(np.sqrt(self._squares.numpy() / (self.count - 1) / self.count))


class Groups:
    """Sums over ten groups of samples; with fewer than ten samples, each is a group.

    Sample ``i`` belongs to group ``i mod 10``, like the windows of a run, for any batch size.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None
        self._counts = torch.zeros(GROUPS, dtype=torch.float64, device="cpu")

    def add(self, values: Tensor, samples: Sequence[int]) -> None:
        """Add ``values [text, ...]``, the samples with the numbers ``samples``."""
        values = values.detach().cpu().double()
        if self._sums is None:
            self._sums = torch.zeros(GROUPS, *values.shape[1:], dtype=torch.float64, device="cpu")
        group = torch.tensor(samples, device="cpu") % GROUPS
        self._sums.index_add_(0, group, values)
        self._counts += torch.bincount(group, minlength=GROUPS)

    @property
    def mean(self) -> np.ndarray:
        """Mean over all samples, ``[...]``."""
        assert self._sums is not None
        return (self._sums.sum(dim=0) / self._counts.sum()).numpy()

    def without_each(self) -> np.ndarray:
        """Return the leave-one-group-out means, ``[group, ...]``."""
        assert self._sums is not None
        there = self._counts > 0
        left = self._counts.sum() - self._counts[there]
        shape = (-1, *[1] * (self._sums.dim() - 1))
        return ((self._sums.sum(dim=0) - self._sums[there]) / left.view(shape)).numpy()


def replicated(numbers: Callable[..., Numbers], *sums: Groups) -> list[Numbers]:
    """Apply ``numbers`` to the means of all samples, then to the leave-one-group-out means."""
    kept = zip(*([groups.mean, *groups.without_each()] for groups in sums), strict=True)
    return [numbers(*means) for means in kept]


def of_sums(numbers: Callable[..., Numbers], *sums: np.ndarray) -> list[Numbers]:
    """Apply ``numbers`` to sums ``[group, ...]`` of all groups, then of all but each group."""
    groups = len(sums[0])
    return [numbers(*(x[k].sum(axis=0) for x in sums)) for k in kept_windows(groups, groups)]


def means_of(
    samples: Mapping[str, np.ndarray], groups: Sequence[int] | None = None
) -> list[Numbers]:
    """Return the means of samples ``[text, ...]`` by name, then their leave-one-group-out means.

    Texts are dealt to groups like the windows of a run, or as ``groups`` says.
    """
    sums = [Groups() for _ in samples]
    for total, array in zip(sums, samples.values(), strict=True):
        total.add(torch.from_numpy(array), range(len(array)) if groups is None else groups)
    return replicated(lambda *means: dict(zip(samples, map(np.asarray, means), strict=True)), *sums)
