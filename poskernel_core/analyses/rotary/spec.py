"""The rotary spectrum: which wavelengths the mean query and the mean key of a head agree on."""

from collections.abc import Mapping

import numpy as np

from poskernel_core.analyses.base import KEPT_QUERIES, OWN_PASS, Analysis, Progress, Statistics
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.rotary import formulas
from poskernel_core.analyses.rotary.pairs import (
    BandParams,
    LayerPairs,
    pairs_of,
    require_rotations,
    rotary_run,
)
from poskernel_core.common.result import Result, estimates, outputs, ranges, shares, sizes
from poskernel_core.common.specs import RunSpec


class RotarySpectrum(Analysis[BandParams]):
    r"""Amplitude, phase and use of every wavelength, in every head of a rotary model.

    A rotary head turns pairs of its dimensions. Pair $r$ turns by $\theta_r$ radians per token,
    like a clock whose hand goes round once in $2\pi/\theta_r$ tokens.

    Formula: let the complex numbers $u_r, v_r$ be pair $r$ of query and key before the rotation,
    and $U_r, V_r$ their means over windows and positions. The amplitude is $A_r = |U_r| |V_r|$, the
    phase $\varphi_r = \arg(U_r \bar V_r)$, the mean share $\sum_r |U_r|^2 / \mathbb{E} \sum_r
    |u_r|^2$, and the usage $\mathbb{E}|u_r|\, \mathbb{E}|v_r|$ divided by its sum over the pairs.

    Choices: angles are the model's own, read while it runs. If the model scales queries and keys by
    a factor $f_r$ (YaRN), $A_r$ includes $f_r^2$. $A_r$ also includes the scale of the scores, so
    amplitudes are in nats. The first ``skip`` positions are left out. A pair that hardly turns
    within the context may have a large amplitude without any effect on attention. So the dominant
    wavelength and the weights of the bands go by the ``swing``, that is by how much the pair's term
    $A_r \cos(\theta_r D + \varphi_r)$ varies over the offsets $D$ of the context.

    Limits: means hide differences between tokens: where the mean share is small, content decides.

    Source: usage as in "Round and round we go! What makes rotary positional encodings useful?"
    (2410.06205); amplitudes, phases and mean shares are ours.
    """

    name = "rotary-spectrum"
    title = "Rotary spectrum"
    noun_phrase = "the rotary spectrum"
    error_counts = "windows"
    scheme = "rotary"
    values = (
        *outputs("""
            wavelength [layer pair], tokens: tokens in which a pair turns once; NaN for pairs that
                are not turned
        """),
        *sizes("amplitude [layer head pair], nats: $A_r$, scale included"),
        *estimates(r"phase [layer head pair], radians: $\varphi_r$, from -π to π"),
        *sizes("""
            swing [layer head pair], nats: standard deviation of the pair's term over the offsets of
                the context
        """),
        *shares("""
            usage [layer head pair], share of usage: length of queries times length of keys, as a
                share over the pairs
            query_share key_share [layer head pair], mean share, 0 to 1: squared mean over mean
                square of each pair
            mean_share_queries mean_share_keys [layer head], mean share, 0 to 1: the same for all
                pairs together; 1 if all queries (or keys) of a head are alike, so that position
                alone decides
        """),
        *ranges("""
            dominant_wavelength [layer head], tokens: wavelength of the pair with the largest
                ``swing``
        """),
        *shares("""
            short_weight middle_weight long_weight [layer head], share of swing: the swings of a
                band of wavelengths, over those of all pairs
        """),
    )
    narrow_below = (("long_weight", 200), ("short_weight", 500), ("mean_share_keys", 0))
    measures = grid_measures("""
        dominant wavelength [dominant_wavelength, log], tokens (log scale): Dark: the pair that
            moves the positional logit most turns within a few tokens.
        weight of short wavelengths [short_weight, unit], share of swing: Bright: what moves the
            positional logit turns within 16 tokens.
        weight of middle wavelengths [middle_weight, unit], share of swing: Bright: what moves the
            logit turns within the context, but not within 16 tokens.
        weight of long wavelengths [long_weight, unit], share of swing: Bright: what moves the
            positional logit turns less than once in the context.
        mean share of queries [mean_share_queries, unit], mean share: Bright: the head's queries all
            point one way, whatever the token.
        mean share of keys [mean_share_keys, unit], mean share: Bright: the head's keys all point
            one way, whatever the token.
    """)
    precomputed = "always"
    ignores = KEPT_QUERIES | OWN_PASS

    def needs(self, run: RunSpec, params: BandParams) -> Mapping[str, RunSpec]:
        return {"main": rotary_run(run, params)}

    def compute(self, statistics: Statistics, params: BandParams, progress: Progress) -> Result:
        view = statistics["main"]
        require_rotations(view)
        context = view.header.context

        def spectrum(layer: int) -> dict[str, np.ndarray]:
            pairs = pairs_of(view, layer, params.skip)
            bands = params.bands(formulas.wavelengths(pairs.speed), context)
            return _spectrum(pairs, bands, np.arange(context - params.skip, dtype=float))

        return self.result(params, self.of_layers(statistics, progress, spectrum))


def _spectrum(pairs: LayerPairs, bands: np.ndarray, offset: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values from the mean pairs of one layer, ``[head, pair]`` or ``[head]``."""
    product, queries, keys = pairs.products, pairs.queries, pairs.keys
    turned = np.isfinite(pairs.speed)
    swing = formulas.swings(product, pairs.speed, offset)
    used = queries[..., formulas.SIZE].astype(np.float64) * keys[..., formulas.SIZE]
    per_pair = {
        "amplitude": np.abs(product),
        "phase": np.angle(product),
        "swing": swing,
        "usage": _share(used, used[..., turned].sum(axis=-1, keepdims=True)),
        "query_share": _pair_share(queries),
        "key_share": _pair_share(keys),
    }
    values = {name: np.where(turned, array, np.nan) for name, array in per_pair.items()}
    values["mean_share_queries"] = formulas.mean_share(queries[..., turned, :])
    values["mean_share_keys"] = formulas.mean_share(keys[..., turned, :])
    for name, band in zip(formulas.BANDS, bands, strict=True):
        values[f"{name}_weight"] = _share(swing[..., band].sum(axis=-1), swing.sum(axis=-1))
    wavelength, swing = formulas.wavelengths(pairs.speed), values["swing"]
    largest = np.nan_to_num(swing, nan=-1).argmax(axis=-1)
    there = np.isfinite(swing).any(axis=-1)
    values["dominant_wavelength"] = np.where(there, wavelength[largest], np.nan)
    return values | {"wavelength": wavelength}


def _pair_share(pairs: np.ndarray) -> np.ndarray:
    return _share(np.abs(formulas.complex_pairs(pairs)) ** 2, pairs[..., formulas.POWER])


def _share(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return ``part / total``, NaN where ``total`` is 0."""
    total = np.broadcast_to(total, part.shape)
    return np.divide(part, total, out=np.full(part.shape, np.nan), where=total > 0)
