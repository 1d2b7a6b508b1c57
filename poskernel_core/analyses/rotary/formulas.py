"""The mathematics of rotary spectra, on NumPy arrays.

Write pair ``r`` of the query and of the key before the rotation as complex numbers ``u_r(n)`` and
``v_r(i)``; the model turns both by ``theta_r`` radians per token and scales them by ``f_r`` (1,
except for YaRN and similar schemes). Then exactly
``s(n,i) = scale * (sum_r f_r^2 Re(u_r(n) conj(v_r(i))
e^{j theta_r (n-i)}) + unturned part)``. With the means over windows and positions, ``U_r`` and
``V_r``, in place of ``u_r`` and ``v_r``, the score depends only on the offset ``D = n - i``. It is
then the positional logit, ``S(D) = scale * sum_r A_r cos(theta_r D + phi_r)``. The softmax of this
logit is the equivariant kernel.

Source: ours, based on the frequencies of "Round and round we go! What makes rotary positional
encodings useful?" (2410.06205).
"""

import numpy as np
from jaxtyping import Bool, Complex, Float

BANDS = ("short", "middle", "long")
ONE, TWO, POWER, SIZE = range(4)
"""Indices into the last axis of the gathered pairs."""

Products = Complex[np.ndarray, "*batch head pair"]
Pairs = Float[np.ndarray, "*batch head pair part"]
PerPair = Float[np.ndarray, " pair"]
Offsets = Float[np.ndarray, " offset"]


def wavelengths(speed: Float[np.ndarray, "*batch pair"]) -> Float[np.ndarray, "*batch pair"]:
    """Return ``2 pi / theta_r`` in tokens; infinite where ``theta_r`` is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(2 * np.pi / np.abs(speed))


def bands_of(
    wavelength: Float[np.ndarray, "*batch pair"], short: float, long: float
) -> Bool[np.ndarray, "band *batch pair"]:
    """Return which pairs are in each of :data:`BANDS`.

    The short band has wavelengths up to ``short`` tokens, the middle band up to ``long`` tokens,
    the long band beyond ``long``. Pairs that are not turned (NaN) are in no band.
    """
    up_to_short, up_to_long = wavelength <= short, wavelength <= long
    return np.stack([up_to_short, ~up_to_short & up_to_long, (wavelength > long) & ~up_to_short])


def complex_pairs(pairs: Pairs) -> Products:
    """Return the mean pairs as complex numbers."""
    return np.asarray(pairs[..., ONE].astype(np.float64) + 1j * pairs[..., TWO])


def products(queries: Products, keys: Products, factor: PerPair, scale: float) -> Products:
    """Return ``scale f_r^2 U_r conj(V_r)``: its size is ``scale A_r``, its angle ``phi_r``.

    ``keys`` are repeated for the query heads that share them. Pairs that are not turned give 0.
    """
    product = scale * factor**2 * queries * np.conj(keys)
    return np.where(np.isnan(factor), 0, product)


def swings(
    product: Products, speed: PerPair, offset: Offsets
) -> Float[np.ndarray, "*batch head pair"]:
    """Return the standard deviation of each pair's term over the offsets, in nats.

    A term that hardly varies over the offsets does not affect the softmax, however large it is.
    """
    angle = np.nan_to_num(speed)[:, None] * offset
    cos, sin = (wave - wave.mean(axis=-1, keepdims=True) for wave in (np.cos(angle), np.sin(angle)))
    squares = [(one * two).mean(axis=-1) for one, two in ((cos, cos), (sin, sin), (cos, sin))]
    real, imag = product.real, product.imag
    variance = real**2 * squares[0] + imag**2 * squares[1] - 2 * real * imag * squares[2]
    return np.asarray(np.sqrt(np.maximum(variance, 0)))


def positional_logit(
    product: Products, speed: PerPair, offset: Offsets
) -> Float[np.ndarray, "*batch head offset"]:
    """Return ``S(D) = scale sum_r A_r cos(theta_r D + phi_r)`` in nats at every offset."""
    angle = np.nan_to_num(speed)[:, None] * offset
    return np.asarray(product.real @ np.cos(angle) - product.imag @ np.sin(angle))


def equivariant_kernel(
    logit: Float[np.ndarray, "*batch offset"],
) -> Float[np.ndarray, "*batch offset"]:
    """Return the softmax of the positional logit over the given (visible) offsets."""
    weight = np.exp(logit - logit.max(axis=-1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def mean_share(pairs: Pairs) -> Float[np.ndarray, "*batch head"]:
    """Return ``sum_r |U_r|^2 / E sum_r |u_r|^2``, from 0 to 1; NaN where nothing is turned."""
    power = np.nansum(pairs[..., POWER], axis=-1, dtype=np.float64)
    squared = np.nansum(np.abs(complex_pairs(pairs)) ** 2, axis=-1)
    return np.divide(squared, power, out=np.full_like(squared, np.nan), where=power > 0)
