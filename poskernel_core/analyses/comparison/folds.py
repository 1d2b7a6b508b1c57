"""Every head's kernel by offset, also without each of some groups of its queries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Progress, SkipParams, Statistics
from poskernel_core.analyses.comparison import formulas as math
from poskernel_core.analyses.kernels.formulas import kernel_rows
from poskernel_core.analyses.kernels.kernel import observed_row
from poskernel_core.analyses.sources import check_query, queries_at
from poskernel_core.common.result import Result, each
from poskernel_core.common.specs import DEFAULT_QUERY, RunSpec

__all__ = ["KernelFolds", "KernelFoldsParams"]


class KernelFoldsParams(SkipParams):
    """Parameters of the kernels by offset."""

    query: int = Field(DEFAULT_QUERY, ge=0, description="query position n")


class KernelFolds(Analysis[KernelFoldsParams]):
    r"""Every head's positional kernel by offset, with groups of its queries left out.

    Formula: $K(n, n-k)$ of the positional kernel, the mean over sampled queries; a **replicate** is
    the mean over all of them but one group's.

    Choices: eight groups of queries in the order of their windows. Offsets that a head does not see
    (skipped keys, keys beyond its window) hold NaN.

    Limits: errors are over queries only; that the mean keys come from finitely many windows is not
    included.

    Source: ours; the kernel is that of "Positional kernels of attention heads".
    """

    name = "kernel-replicates"
    title = "Kernels by offset, with leave-one-group-out replicates"
    spoken = "kernels by offset"
    error_counts = "queries"
    params = KernelFoldsParams
    values = (
        *each(
            "kernel",
            "layer head offset",
            "share of attention",
            "the mean kernel by offset $n - i$; NaN where no key is visible",
            has_error=True,
        ),
        *each(
            "replicate",
            "left_out layer head offset",
            "share of attention",
            "the same without the queries of one group",
        ),
        *each(
            "observed",
            "layer head offset",
            "share of attention",
            "mean attention seen at ``n``, ``skip`` applied and renormalised",
        ),
    )

    def needs(self, run: RunSpec, params: KernelFoldsParams) -> Mapping[str, RunSpec]:
        """Return the run itself.

        Raises:
            BadRequest: the position is outside the context, or sees no key.
        """
        check_query(params.query, params.skip, run.context)
        return {"main": run}

    def compute(
        self, statistics: Statistics, params: KernelFoldsParams, progress: Progress
    ) -> Result:
        """Turn the kernels of all layers, and leave each group out once."""
        layers = range(statistics["main"].header.n_layers)
        found = []
        for layer in layers:
            found.append(_layer(statistics, layer, params))
            progress(layer + 1, len(layers))
        kernel, error, without, observed = ([every[place] for every in found] for place in range(4))
        return self.result(
            params,
            {
                "kernel": np.stack(kernel),
                "replicate": np.stack(without, axis=1).astype(np.float32),
                "observed": np.stack(observed),
            },
            {"kernel": np.stack(error)},
        )


def _layer(
    statistics: Statistics, layer: int, params: KernelFoldsParams
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return kernel, error, replicates and observed attention of a layer, by offset ``0 .. n``."""
    view, n = statistics["main"], params.query
    rule = view.header.rule(layer)
    low = rule.first_visible(n, params.skip)
    keys = view.layer(layer)["mean_keys"][:, low : n + 1]
    kernels = kernel_rows(queries_at(statistics, layer, n), keys, rule, low)
    samples = kernels.shape[1]
    mean = kernels.mean(axis=1)
    error = kernels.std(axis=1, ddof=1) / np.sqrt(samples) if samples > 1 else mean * np.nan
    observed = observed_row(statistics, layer, n, low)
    seen = mean * np.nan if observed is None else observed
    return (
        _by_offset(mean, n),
        _by_offset(error, n),
        _by_offset(math.folds(kernels), n),
        _by_offset(seen, n),
    )


def _by_offset(rows: np.ndarray, n: int) -> np.ndarray:
    """Return rows over the visible keys by offset from 0 to ``n``, NaN beyond the first key."""
    beyond = [(0, 0)] * (rows.ndim - 1) + [(0, n + 1 - rows.shape[-1])]
    return np.pad(rows[..., ::-1], beyond, constant_values=np.nan)
