"""All heads of a model as points in a plane, so that heads with near kernels are near."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from poskernel_core.analyses.base import Composition, QueryParams, SubQuestion
from poskernel_core.analyses.kernels.formulas import pairwise_distances
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.sources import check_query
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.specs import RunSpec

COMPONENTS = 2


class NearKernels(Composition[QueryParams]):
    r"""All heads of a model as points in a plane, so that heads with near kernels are near.

    Formula: classical scaling of the distances $d_{gh} = \tfrac12 \sum_i |K_g(n,i) - K_h(n,i)|$
    between all heads: of $B = -\tfrac12 J D J$, with $D_{gh} = d_{gh}^2$ and the centring matrix
    $J$, the two largest eigenvalues $\lambda_c$ and their eigenvectors $v_c$ give the places
    $\sqrt{\lambda_c}\, v_c$. With the distances $\hat d_{gh}$ between the places,
    $\text{stress} = \sqrt{\sum_{gh} (d_{gh} - \hat d_{gh})^2 / \sum_{gh} d_{gh}^2}$.

    Choices: a key that a head does not see counts as 0, so this is a distance between
    distributions; to compare pinned heads, kernels are renormalised on the offsets that both see.
    The two differ only between layers with different windows. Of each component, the head farthest
    from 0 has a positive place. Scaling by iteration would reach a lower stress, but depends on its
    start.

    Limits: a plane cannot hold all distances. Those between places are rarely larger than those
    between kernels, but often smaller: heads near each other need not have near kernels, the less
    so the larger the stress. Components have no meaning of their own: kernels that change step by
    step, from narrow to broad, lie on an arch. Noise of the texts makes distances between kernels a
    little too large.

    Source: ours; the kernel is that of "Positional kernels of attention heads". The method is that
    of Torgerson, "Multidimensional scaling: I. Theory and method" (1952). Kruskal's stress (1964)
    divides by the distances between the places instead.
    """

    name = "near-kernels"
    title = "Heads placed by their kernels"
    noun_phrase = "the heads placed by their kernels"
    values = outputs("""
        place [layer head component], TV distance: where each head stands in the plane; NaN without
            a kernel
        stress, share of distance: how much distances in the plane differ from those between
            kernels, root mean square: 0 if they are equal
    """)

    def parts(self, run: RunSpec, params: QueryParams) -> Mapping[str, SubQuestion]:
        """Return the kernels of all heads."""
        check_query(params.query, params.skip, run.context)
        part_params = KernelParams(query=params.query, skip=params.skip)
        return {"kernel": SubQuestion(PositionalKernel(), run, part_params)}

    def compose(self, results: Mapping[str, Result], run: RunSpec, params: QueryParams) -> Result:
        kernels = results["kernel"].values["kernel"]
        there = np.isfinite(kernels).all(axis=-1)
        apart = pairwise_distances(kernels[there])
        place = np.full((*there.shape, COMPONENTS), np.nan)
        place[there] = classical_scaling(apart)
        return self.result(
            params,
            {"place": place, "stress": np.array(stress(apart, place[there]))},
            provenance=results["kernel"].provenance,
        )


def classical_scaling(
    distance: Float[np.ndarray, "head other"],
) -> Float[np.ndarray, "head component"]:
    """Return places in a plane whose distances are near the given ones.

    SciPy is missing where results are only shown, so this is NumPy alone.
    """
    squares = distance**2
    rows = squares - squares.mean(axis=0)
    values, vectors = np.linalg.eigh(-0.5 * (rows - rows.mean(axis=1, keepdims=True)))
    largest = slice(-1, -1 - COMPONENTS, -1)
    places = np.sqrt(np.maximum(values[largest], 0)) * vectors[:, largest]
    farthest = np.abs(places).round(9).argmax(axis=0)  # of equally far heads, the first
    places *= np.where(places[farthest, np.arange(places.shape[1])] < 0, -1, 1)
    return np.pad(places, ((0, 0), (0, COMPONENTS - places.shape[1])))


def stress(
    distance: Float[np.ndarray, "head other"], place: Float[np.ndarray, "head component"]
) -> float:
    """Return the root mean square error of the distances between places, over that of ``distance``.

    It is 0 where all distances are 0.
    """
    drawn = np.linalg.norm(place[:, None] - place, axis=-1)
    total = np.square(distance).sum()
    return float(np.sqrt(np.square(distance - drawn).sum() / total)) if total else 0.0
