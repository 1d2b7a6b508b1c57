"""Every head's kernel by offset, with leave-one-group-out replicates."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from poskernel_core.analyses.base import Analysis, Progress, QueryParams, Statistics
from poskernel_core.analyses.kernels.kernel import kernels_at, observed_row
from poskernel_core.analyses.sources import check_query
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.specs import RunSpec


class KernelFolds(Analysis[QueryParams]):
    r"""Every head's positional kernel by offset, with groups of texts left out.

    Formula: the positional kernel $K(n, n-k)$, a mean over sampled queries; a **replicate** is the
    same kernel with one group of texts left out of the queries and of the mean keys.

    Choices: offsets that a head does not see (skipped keys, keys beyond its window) are NaN.

    Limits: noise in the mean keys makes kernels look sharper than they are.

    Source: ours; the kernel is that of "Positional kernels of attention heads".
    """

    name = "kernel-replicates"
    title = "Kernels by offset, with leave-one-group-out replicates"
    noun_phrase = "kernels by offset"
    error_counts = "queries"
    values = outputs("""
        ± kernel [layer head offset], share of attention: the mean kernel by offset $n - i$; NaN
            where no key is visible
        replicate [left_out layer head offset], share of attention: the same without one group of
            texts
        ± observed [layer head offset], share of attention: mean attention seen at ``n``, ``skip``
            applied and renormalised
    """)

    def needs(self, run: RunSpec, params: QueryParams) -> Mapping[str, RunSpec]:
        check_query(params.query, params.skip, run.context)
        return {"main": run}

    def compute(self, statistics: Statistics, params: QueryParams, progress: Progress) -> Result:
        one = partial(_layer, statistics, params)
        return self.result(params, self.of_layers(statistics, progress, one))

    def answer(self, statistics: Statistics, params: QueryParams, progress: Progress) -> Result:
        """Add the leave-one-group-out replicates; without groups, a single one of NaN."""
        full, without = self.jackknifed(statistics, params, progress)
        kernel = full.values["kernel"]
        folds = np.stack([replicate.values["kernel"] for replicate in without] or [kernel * np.nan])
        result = self.result(
            params,
            {**full.values, "replicate": folds.astype(np.float32)},
            full.errors,
            full.biases,
        )
        return replace(result, provenance=full.provenance)


def _layer(statistics: Statistics, params: QueryParams, layer: int) -> dict[str, np.ndarray]:
    """Return kernel and observed attention of a layer, by offset ``0 .. n``."""
    n = params.query
    mean, low = kernels_at(statistics, layer, n, params.skip)
    observed = observed_row(statistics, layer, n, low)
    seen = mean * np.nan if observed is None else observed
    return {"kernel": _by_offset(mean, n), "observed": _by_offset(seen, n)}


def _by_offset(rows: np.ndarray, n: int) -> np.ndarray:
    """Reindex rows over visible keys by offset from 0 to ``n``; NaN beyond the first key."""
    beyond = [(0, 0)] * (rows.ndim - 1) + [(0, n + 1 - rows.shape[-1])]
    return np.pad(rows[..., ::-1], beyond, constant_values=np.nan)
