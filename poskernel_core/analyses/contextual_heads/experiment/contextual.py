"""One token in many contexts: how much its softmax denominator varies, in every head."""

import numpy as np
import torch

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.experiment import contents
from poskernel_core.analyses.contextual_heads.experiment.duplicates import (
    copy_distances,
    duplicates,
)
from poskernel_core.analyses.contextual_heads.spec import (
    ContextualHeads,
    ContextualParams,
    behaviour,
)
from poskernel_core.analyses.random_tokens.experiment.sampled import steps
from poskernel_core.common.groups import first_in_equal_groups, groups_of, kept_windows
from poskernel_core.common.result import Result
from poskernel_core.statistics.moments import Numbers

LOCAL_TOKENS = 10


class LayerRows:
    """One layer's denominators of all windows ``[head, text]``, and sums of everything else.

    Sums are over all windows, and over all but each group.
    """

    def __init__(self, heads: int, texts: int, groups: int = 0) -> None:
        self.denominators = np.zeros((heads, texts))
        self._kept = torch.from_numpy(kept_windows(texts, groups)).double()
        self._kernel: np.ndarray | float = 0.0
        self._sums = np.zeros((5, 1 + groups, heads))
        self._keys = 0

    def add(self, row: contents.LastQuery, some: range) -> None:
        """Add some texts."""
        kernel, weight, z = row.kernel, row.log_weight.exp(), row.denominator
        kept = self._kept[:, some.start : some.stop]
        self.denominators[:, some.start : some.stop] = z[0].T.numpy()
        self._kernel = self._kernel + torch.einsum("gt,gthk->ghk", kept, kernel).numpy()
        summands = (
            z,
            z**2,
            *((x**p).sum(dim=-1) for x, p in ((kernel, 2), (weight, 1), (weight, 2))),
        )
        self._sums += torch.einsum("gt,ngth->ngh", kept, torch.stack(summands)).numpy()
        self._keys = kernel.shape[-1]

    def values(self) -> list[Numbers]:
        """Return the values ``[head]`` of all windows, and their leave-one-group-out replicates."""
        texts = self._kept.sum(dim=1).numpy()
        rows = zip(texts, np.asarray(self._kernel), self._sums.swapaxes(0, 1), strict=True)
        return [_numbers(*row, self._keys) for row in rows]


def _numbers(texts: float, kernel: np.ndarray, sums: np.ndarray, keys: int) -> Numbers:
    mean, (z, z_square, squares, *weights) = kernel / texts, sums / texts
    weight_mean, square = np.array(weights) / keys
    variance = np.maximum(square - weight_mean**2, 0)
    return {
        "etc": 1 / (mean**2).sum(axis=-1),
        "local_mass": mean[:, -LOCAL_TOKENS:].sum(axis=-1),
        "visible_keys": np.full(len(mean), keys),
        "denominator": z,
        "denominator_cv": relative_spread(texts, z, z_square),
        "predicted_cv": np.sqrt(variance * squares) / weight_mean,
        "weight_mean": weight_mean,
        "weight_variance": variance,
    }


def relative_spread(count: float, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Return the coefficient of variation from means and mean squares; NaN for a single number."""
    if count < 2:
        return np.full_like(mean, np.nan)
    variance = np.maximum(square - mean**2, 0) * count / (count - 1)
    return np.asarray(np.sqrt(variance) / mean)


def contextual_heads(subject: ExperimentContext, params: ContextualParams) -> Result:
    """Run every window; see :class:`spec.ContextualHeads`."""
    assert subject.source is not None
    geometry = subject.model.geometry
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    groups = groups_of(len(texts))
    windows = contents.destination_windows(
        texts, params.query, contents.token_id(subject, params.token)
    )
    layers = [LayerRows(geometry.n_heads, len(windows), groups) for _ in range(geometry.n_layers)]
    count = steps(subject, len(windows) + params.samples)
    for some, rows in contents.last_rows(subject, windows, params.skip, groups=groups):
        for row in rows:
            layers[row.layer].add(row, some)
        count(len(some))
    full, *without = (
        {name: np.stack([layer[name] for layer in every]) for name in every[0]}
        for every in zip(*(layer.values() for layer in layers), strict=True)
    )
    copies = duplicates(subject, params.query, params.samples, count)
    means = {name: mean for name, (mean, _) in copies.items()}
    return ContextualHeads.estimated(
        subject,
        params,
        [full, *without],
        means | {"group": behaviour(full | means, params)},
        {name: error for name, (_, error) in copies.items()},
        coordinates={
            "distance": copy_distances(
                params.query, int(subject.start_token), len(subject.source.pool)
            )
        },
        provenance={
            "first_windows": len(windows),
            "errors": f"sequences of random tokens (duplicates) and {subject.dealt}",
        },
    )
