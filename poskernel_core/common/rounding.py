"""Format numbers, rounded to their errors."""

import math

import numpy as np

from poskernel_core.common.result import Result

Number = float | np.floating
SMALL = -3
"""Numbers below this power of ten are written in scientific notation."""

NEGLIGIBLE = 1e-7
"""An error below this fraction of the value comes from floating-point rounding only."""

SIGNIFICANT = 4
"""Most significant digits of a value."""

SHARES, TRACE = ("share", "probability"), 1e-3
"""How the units of shares begin, and what is a trace of one."""

NO_NUMBER = "–"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded(value: Number, error: Number | None = None, unit: str = "") -> str:
    """Return a value and its error, as pages show them.

    The error has two significant digits. The value ends where its error ends, and has four
    significant digits at most: ``12300 ± 1200``, ``(−1.20 ± 0.15)×10⁻⁹``. An error that would have
    more decimals than the value is rounded up: ``395.8 ± 0.1``, for 0.010. A value without an error
    has four significant digits, and so has one whose error comes from floating-point rounding only.
    There is no power of ten between 0.001 and 10,000. Of a share, a trace is ``below 0.001``.
    """
    value, error = float(value), None if error is None else float(error)
    if math.isnan(value):
        return NO_NUMBER
    if unit.startswith(SHARES) and 0 < value < TRACE and not (error or 0) >= TRACE:
        return f"below {TRACE:g}"
    if error is None or not math.isfinite(error) or error <= NEGLIGIBLE * abs(value):
        return as_printed(f"{value:.{SIGNIFICANT}g}")
    digits = _decimals(error, 2)
    power = math.floor(math.log10(max(abs(value), error)))
    if power < SMALL:
        scale = 10.0**power
        both = _pair(value / scale, error / scale, digits + power)
        return as_printed(f"({both})×{power_of_ten(power)}")
    return as_printed(_pair(value, error, digits))


def _pair(value: float, error: float, digits: int) -> str:
    """Return value and error with this many decimals, or with fewer if the value has too many."""
    own = min(digits, _decimals(value, SIGNIFICANT)) if value else digits
    decimals = max(own, 0)
    if decimals < digits:
        error, digits = math.ceil(round(error * 10.0**decimals, 9)) / 10.0**decimals, decimals
    texts = (f"{round(number, n):z.{max(n, 0)}f}" for number, n in ((value, own), (error, digits)))
    return " ± ".join(texts)


def _decimals(value: float, digits: int) -> int:
    """Return the number of decimals up to a significant digit of a number."""
    return digits - 1 - math.floor(math.log10(float(f"{abs(value):.{digits - 1}e}")))


def brief(value: Number) -> str:
    """Return a number as sentences print it: two decimals below 1, else three digits at most."""
    value = float(value)
    if math.isnan(value):
        return NO_NUMBER
    if 0.01 <= abs(value) < 1:
        return as_printed(f"{value:.2f}")
    return as_printed(f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}")


def number_and_error(text: str) -> tuple[str, str]:
    """Split a text of :func:`rounded` into value and error, each with the common power of ten.

    The second is empty if there is no error.
    """
    number, _, error = text.partition(" ± ")
    error, _, power = error.partition(")")
    return number.removeprefix("(") + power, error + power


def power_of_ten(exponent: int) -> str:
    """Return a power of ten with a superscript: ``10⁻⁹``."""
    return f"10{str(exponent).translate(SUPERSCRIPT)}"


def as_printed(text: str) -> str:
    """Typeset a number formatted by Python: a minus sign for ``-``, a power of ten for ``e``."""
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa.replace("-", "−")
    return f"{mantissa}×{power_of_ten(int(exponent))}" if exponent else mantissa


def counted(number: int | str, noun: str, several: str = "") -> str:
    """Return a number with its noun: ``1 token``, ``1,024 tokens``.

    ``several`` is the plural if it is not the noun plus ``s``.
    """
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {noun if text == '1' else several or noun + 's'}"


def value_text(result: Result, name: str) -> str:
    """Return a scalar value of a result with its standard error, such as ``93.20 ± 0.41``.

    A range is told by its ends, if they differ: ``14 (12 to 15)``.
    """
    return str(texts_of(result, name))


def texts_of(result: Result, name: str) -> np.ndarray:
    """Return all numbers of a value as texts, rounded to their errors, in the value's shape."""
    values, unit = result.values[name], result.units[name]
    errors = result.errors.get(name, np.full(values.shape, np.nan))
    texts = [
        rounded(float(v), float(e), unit)
        for v, e in zip(values.ravel(), errors.ravel(), strict=True)
    ]
    if name in result.lows and name not in result.errors:
        ends = zip(result.lows[name].ravel(), result.highs[name].ravel(), strict=True)
        texts = [
            f"{text} ({rounded(low)} to {rounded(high)})" if low < high else text
            for text, (low, high) in zip(texts, ends, strict=True)
        ]
    return np.array(texts, dtype=object).reshape(values.shape)
