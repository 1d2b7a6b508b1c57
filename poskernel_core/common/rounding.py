"""Format numbers, rounded to their errors."""

import math

import numpy as np

from poskernel_core.common.result import Result

Number = float | np.floating
SMALL = -3
"""Numbers below this power of ten are written in scientific notation."""

NEGLIGIBLE = 1e-7
"""An error below this fraction of the value comes from floating-point rounding only."""

NO_NUMBER = "–"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded(value: Number, error: Number | None = None) -> str:
    """Return a value and its error, rounded to the error's first two significant digits.

    ``395.770 ± 0.010``, ``12300 ± 1200``, ``(−1.20 ± 0.15)×10⁻⁹``. A value without an error has
    four significant digits, and so has one whose error comes from floating-point rounding only.
    """
    value, error = float(value), None if error is None else float(error)
    if math.isnan(value):
        return NO_NUMBER
    if error is None or not math.isfinite(error) or error <= NEGLIGIBLE * abs(value):
        return as_printed(f"{value:.4g}")
    digits = _digits(error)
    power = math.floor(math.log10(max(abs(value), error)))
    if power < SMALL:
        shown = digits + power
        scale = 10.0**power
        text = f"({value / scale:.{shown}f} ± {error / scale:.{shown}f})×{power_of_ten(power)}"
    else:
        shown = max(digits, 0)
        text = f"{round(value, digits):.{shown}f} ± {round(error, digits):.{shown}f}"
    return as_printed(text)


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
    """Return a scalar value of a result with its standard error, such as ``93.20 ± 0.41``."""
    error = float(result.errors[name]) if name in result.errors else None
    return rounded(float(result.values[name]), error)


def bias_text(bias: Number | np.ndarray | None, error: Number | np.ndarray | None = None) -> str:
    """Return a bias with two significant digits, fewer if its error is large; empty if unknown."""
    known = math.nan if bias is None else float(bias)
    if not math.isfinite(known):
        return ""
    return as_printed(f"{0.0 + rounded_to(known, error):.2g}")


def rounded_to(value: Number, error: Number | np.ndarray | None) -> float:
    """Round a number to its error's first two significant digits, if the error is known."""
    known = math.nan if error is None else float(error)
    if not 0 < known < math.inf:
        return float(value)
    return round(float(value), _digits(known))


def _digits(error: float) -> int:
    """Return the number of decimals up to an error's second significant digit."""
    return 1 - math.floor(math.log10(float(f"{error:.1e}")))


def with_bias(
    text: str, bias: Number | np.ndarray | None, error: Number | np.ndarray | None
) -> str:
    """Append the bias, if known, to a number's text: ``93.20 ± 0.41, bias 0.12``."""
    return f"{text}, bias {told}" if (told := bias_text(bias, error)) else text


def value_and_bias(result: Result, name: str) -> str:
    """Return a scalar value of a result with its standard error, and its bias if known."""
    return with_bias(value_text(result, name), result.biases.get(name), result.errors.get(name))


def texts_of(result: Result, name: str) -> np.ndarray:
    """Return all numbers of a value as texts, rounded to their errors, in the value's shape."""
    values = result.values[name]
    errors = result.errors.get(name, np.full(values.shape, np.nan))
    texts = [
        rounded(float(v), float(e)) for v, e in zip(values.ravel(), errors.ravel(), strict=True)
    ]
    return np.array(texts, dtype=object).reshape(values.shape)
