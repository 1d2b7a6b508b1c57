"""Shared by the analyses of rotary heads: bands of wavelengths, and mean pairs of a layer."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Complex, Float
from pydantic import Field

from poskernel_core.analyses.base import Params, SkipParams
from poskernel_core.analyses.rotary import formulas
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest, NotInModel
from poskernel_core.common.specs import RunSpec
from poskernel_core.common.views import StatisticsView

SHORT = 16.0


class Wavelengths(Params):
    """Parameters that cut the wavelengths of a model into three bands."""

    short: float = Field(
        SHORT, gt=0, le=1e9, description="longest wavelength of the short band, in tokens"
    )
    long: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="longest wavelength of the middle band, in tokens (default: the context)",
    )

    def longest(self, context: int) -> float:
        """Return where the middle band ends, in tokens.

        Raises:
            BadRequest: it ends before it begins.
        """
        long = max(float(context), self.short) if self.long is None else self.long
        if long < self.short:
            raise BadRequest(
                f"Expected bands that grow, got one up to {self.short:g} tokens and one up to "
                f"{long:g}: choose a shorter first band, or a longer second one."
            )
        return long

    def bands(
        self, wavelength: Float[np.ndarray, "*batch pair"], context: int
    ) -> Bool[np.ndarray, "band *batch pair"]:
        """Return which pairs are in each band, as far as :meth:`longest` allows it."""
        return formulas.bands_of(wavelength, self.short, self.longest(context))


class BandParams(SkipParams, Wavelengths):
    """Bands, and the first positions to skip."""


def rotary_run(run: RunSpec, params: BandParams) -> RunSpec:
    """Return the small pass that gathers rotary pairs, over the same windows.

    Raises:
        BadRequest: the middle band ends before it begins, or no position is left.
    """
    params.longest(run.context)
    if not max(1, params.skip) < run.context:
        raise BadRequest(
            f"Expected a context longer than the {params.skip} keys that are left out, and of two "
            f"tokens or more; got {run.context}: choose a longer context, or a smaller skip."
        )
    return run.model_copy(update={"gather": ("rotary",)})


@dataclass(frozen=True)
class LayerPairs:
    """One layer's mean pairs.

    Attributes:
        speed, factor: radians per token and factor of every pair; NaN for pairs not turned.
        queries, keys: ``[head, pair, part]``; keys are repeated for the query heads that share
            them.
        scale: factor of the query-key products.
    """

    speed: Float[np.ndarray, " pair"]
    factor: Float[np.ndarray, " pair"]
    queries: Float[np.ndarray, "head pair part"]
    keys: Float[np.ndarray, "head pair part"]
    scale: float

    @property
    def products(self) -> Complex[np.ndarray, "head pair"]:
        """``scale f_r^2 U_r conj(V_r)``."""
        both = formulas.complex_pairs(self.queries), formulas.complex_pairs(self.keys)
        return formulas.products(*both, self.factor, self.scale)


def require_rotations(view: StatisticsView) -> None:
    """Check that the model rotates pairs, and that the pass has seen the angles.

    Raises:
        NotInModel: the model rotates nothing.
        BadRequest: no layer passes angles to its attention.
    """
    header = view.header
    if header.scheme != "rotary":
        raise NotInModel(
            f"Expected a model that turns its queries and keys by position (rotary), got one with "
            f"{header.scheme} positions: choose another model."
        )
    layers = range(view.header.n_layers)
    if all(np.isnan(view.layer(layer)["pair_speed"]).all() for layer in layers):
        raise BadRequest(
            f"Models of the kind {view.header.architecture!r} turn queries and keys inside their "
            "attention, so that the wavelengths cannot be read: choose another rotary model."
        )


def pairs_of(view: StatisticsView, layer: int, skip: int) -> LayerPairs:
    """Return the pairs of one layer, averaged over the positions from ``skip`` on."""
    header, arrays = view.header, view.layer(layer)
    heads = header.n_heads
    return LayerPairs(
        speed=arrays["pair_speed"].astype(np.float64),
        factor=arrays["pair_factor"].astype(np.float64),
        queries=arrays["query_pairs"][skip],
        keys=repeat_kv(arrays["key_pairs"][skip], heads, 0),
        scale=header.scales[layer],
    )
