"""The equivariant kernel: the attention of the mean query to the mean key, by offset."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from poskernel_core.analyses.base import Analysis, Progress, QueryParams, Statistics
from poskernel_core.analyses.kernels.formulas import effective_tokens, total_variation
from poskernel_core.analyses.kernels.kernel import kernels_at, observed_row
from poskernel_core.analyses.replicates import GAP
from poskernel_core.analyses.rotary import formulas
from poskernel_core.analyses.rotary.pairs import (
    BandParams,
    pairs_of,
    require_rotations,
    rotary_run,
)
from poskernel_core.analyses.sources import check_query
from poskernel_core.common.result import Result, distances, estimates, token_counts
from poskernel_core.common.specs import RunSpec

LOGITS = ("positional_logit", "band_logit")


class EquivariantParams(BandParams, QueryParams):
    """Parameters of the equivariant kernels at one query position."""


class EquivariantKernel(Analysis[EquivariantParams]):
    r"""The positional logit by offset, its kernel, and the kernel without each band of wavelengths.

    Formula: with the mean pairs $U_r, V_r$ of queries and keys before the rotation, $S(D) =
    \text{scale} \sum_r A_r \cos(\theta_r D + \varphi_r)$ at the offset $D = n - i$, $A_r = |U_r|
    |V_r|$, $\varphi_r = \arg(U_r \bar V_r)$. The equivariant kernel is the softmax of $S$ over the
    visible offsets. It equals the positional kernel $K(n,\cdot)$ where mean keys do not depend on
    position before the rotation, and every query is the mean query.

    Choices: the first ``skip`` keys are left out, as are the first ``skip`` positions of the means.
    The bands are wavelengths up to 16 tokens, from there up to the context, and beyond the context.
    A kernel without a band is the softmax of $S$ without the terms of its pairs. The softmax
    ignores constants, so logits are given minus their means over the visible offsets; dimensions
    that are not turned add only a constant.

    Limits: one query and one key stand for all queries and keys. Where ``kernel_distance`` is
    large, mean keys change with position, or queries differ; where
    ``equivariant_attention_distance`` is large, content decides. A soft cap on scores is left out
    of $S$; the positional kernel has it.

    Source: ours; removing wavelengths to see their effect follows "Round and round we go! What
    makes rotary positional encodings useful?" (2410.06205).
    """

    name = "equivariant-kernel"
    title = "Equivariant kernel"
    noun_phrase = "the equivariant kernels"
    error_counts = "windows"
    scheme = "rotary"
    values = (
        *estimates("""
            positional_logit [layer head offset], nats: $S(D)$, minus its mean; NaN where an offset
                is not visible
            band_logit [layer head band offset], nats: the part of $S(D)$ that a band of wavelengths
                makes, minus its mean
            equivariant_kernel [layer head offset], share of attention: softmax of $S(D)$; offsets
                that are not visible hold 0
            without_band [layer head band offset], share of attention: the same without a band of
                wavelengths
            mean_key_kernel observed [layer head offset], share of attention: the positional kernel
                (mean over sampled queries), and the attention seen at ``n``, both by offset
        """),
        *token_counts("""
            etc [layer head], tokens: effective token count (ETC)
            band_etc [layer head band], tokens: ETC of the kernel without a band
        """),
        *distances(
            "band_distance [layer head band]",
            "total variation between the kernel without a band and the whole one",
        ),
        *distances(
            "kernel_distance [layer head]", "TV of the equivariant kernel to the positional kernel"
        ),
        *distances(
            "equivariant_attention_distance [layer head]",
            "TV of the equivariant kernel to the observed attention",
        ),
        *distances(
            "attention_distance [layer head]",
            "TV of the positional kernel to the observed attention",
        ),
    )
    precomputed = "always"

    def needs(self, run: RunSpec, params: EquivariantParams) -> Mapping[str, RunSpec]:
        rotary = rotary_run(run, params)
        check_query(params.query, params.skip, run.context)
        return {"main": run, "rotary": rotary}

    def compute(
        self, statistics: Statistics, params: EquivariantParams, progress: Progress
    ) -> Result:
        require_rotations(statistics["rotary"])
        one = partial(_layer, statistics, params)
        return self.result(params, self.of_layers(statistics, progress, one))


def _layer(statistics: Statistics, params: EquivariantParams, layer: int) -> dict[str, np.ndarray]:
    header, n = statistics["main"].header, params.query
    mean_key, low = kernels_at(statistics, layer, n, params.skip)
    offset = np.arange(n - low + 1, dtype=float)
    pairs = pairs_of(statistics["rotary"], layer, params.skip)
    bands = params.bands(formulas.wavelengths(pairs.speed), header.context)
    mean_key = mean_key[:, ::-1]
    observed = observed_row(statistics, layer, n, low)
    seen = np.full_like(mean_key, np.nan) if observed is None else observed[:, ::-1]
    product = pairs.products
    parts = [
        formulas.positional_logit(product[..., band], pairs.speed[band], offset) for band in bands
    ]
    by_band = np.stack(parts, axis=-2)
    by_band -= by_band.mean(axis=-1, keepdims=True)
    logit = by_band.sum(axis=-2)
    kernel = formulas.equivariant_kernel(logit)
    without = formulas.equivariant_kernel(logit[..., None, :] - by_band)
    row = {
        "positional_logit": logit,
        "band_logit": by_band,
        "equivariant_kernel": kernel,
        "without_band": without,
        "etc": effective_tokens(kernel),
        "band_etc": effective_tokens(without),
        **_apart("band_distance", without, kernel[..., None, :]),
        **_apart("kernel_distance", kernel, mean_key),
        **_apart("equivariant_attention_distance", kernel, seen),
        "mean_key_kernel": mean_key,
        "observed": seen,
        **_apart("attention_distance", mean_key, seen),
    }
    hidden = header.context - len(offset)
    offsets = {value.name for value in EquivariantKernel.values if "offset" in value.axes}
    return {
        name: _padded(name, array, hidden) if name in offsets or name.endswith(GAP) else array
        for name, array in row.items()
    }


def _apart(name: str, one: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray]:
    distance = total_variation(one, np.broadcast_to(other, one.shape))
    return {name: distance, f"{name}{GAP}": (one - other).astype(np.float32)}


def _padded(name: str, array: np.ndarray, hidden: int) -> np.ndarray:
    nothing = np.nan if name in LOGITS else 0.0
    padding = [(0, 0)] * (array.ndim - 1) + [(0, hidden)]
    return np.pad(array, padding, constant_values=nothing).astype(np.float32)
