"""Which heads of a layer have the same kernel: pairwise distances and groups."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Progress, QueryParams, Statistics
from poskernel_core.analyses.kernels import formulas
from poskernel_core.analyses.kernels.kernel import kernels_at
from poskernel_core.analyses.replicates import GAP
from poskernel_core.analyses.sources import check_query
from poskernel_core.common.result import Result, distances, outputs
from poskernel_core.common.specs import RunSpec


class KernelDistancesParams(QueryParams):
    """Parameters of the distances between heads."""

    alike: float = Field(0.1, ge=0, le=1, description="largest distance between heads of one group")
    apart: float = Field(0.5, ge=0, le=1, description="distance from which a pair is ruled out")


class KernelDistances(Analysis[KernelDistancesParams]):
    r"""Distances between the positional kernels of a layer's heads.

    Formula: $\mathrm{TV}(K,K') = \tfrac12 \sum_i |K_i - K'_i|$, from 0 (equal) to 1 (no key in
    common).

    Choices: groups come from complete linkage: any two heads of a group are at most ``alike`` (0.1)
    apart. A distance of ``apart`` (0.5) or more rules out that two heads share a feature. Kernels
    are means over sampled queries at one position.

    Limits: heads that share a feature need equal kernels, but heads with equal kernels need not
    share a feature.

    Source: "Positional kernels of attention heads" (attention superposition).
    """

    name = "kernel-distances"
    title = "Distances between kernels"
    noun_phrase = "distances between kernels"
    error_counts = "queries"
    values = (
        *distances(
            "distance [layer head other]", "total variation between the mean kernels of two heads"
        ),
        *outputs("""
            group [layer head], number: number of the head's group, from 0 on by first member; heads
                of one group are candidates for superposition
            ruled_out [layer head], heads: number of heads whose kernels are too far away to share a
                feature
        """),
    )
    precomputed = "always"

    def needs(self, run: RunSpec, params: KernelDistancesParams) -> Mapping[str, RunSpec]:
        check_query(params.query, params.skip, run.context)
        return {"main": run}

    def compute(
        self, statistics: Statistics, params: KernelDistancesParams, progress: Progress
    ) -> Result:
        def apart(layer: int) -> dict[str, np.ndarray]:
            kernels, low = kernels_at(statistics, layer, params.query, params.skip)
            kernels = np.pad(kernels, ((0, 0), (low, 0)))
            gaps = (kernels[:, None] - kernels).astype(np.float32)
            return {"distance": formulas.pairwise_distances(kernels), f"distance{GAP}": gaps}

        arrays = self.of_layers(statistics, progress, apart)
        distance = arrays["distance"]
        others = ~np.eye(distance.shape[-1], dtype=bool)
        return self.result(
            params,
            {
                **arrays,
                "group": np.stack([linked(matrix, params.alike) for matrix in distance]),
                "ruled_out": (others & (distance >= params.apart)).sum(axis=-1),
            },
        )


def linked(distance: Float[np.ndarray, "head other"], alike: float) -> Int[np.ndarray, " head"]:
    """Return the group of every head; any two heads of a group are at most ``alike`` apart."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(distance) < 2:
        return np.zeros(len(distance), dtype=np.int64)
    tree = linkage(squareform(distance, checks=False), method="complete")
    clusters = fcluster(tree, alike, criterion="distance")
    _, first, group = np.unique(clusters, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]
