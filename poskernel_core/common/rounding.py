"""Numbers as text, rounded to their error."""

from __future__ import annotations

import math

import numpy as np

from poskernel_core.common.result import Result

__all__ = [
    "as_printed",
    "bias_text",
    "counted",
    "number_and_error",
    "rounded",
    "rounded_to",
    "texts_of",
    "value_and_bias",
    "value_text",
    "with_bias",
]

Number = float | np.floating
SMALL = -3
"""Power of ten below which a number is written with it."""

NEGLIGIBLE = 1e-7
"""An error smaller than this share of the value is that of the arithmetic."""

NO_NUMBER = "–"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded(value: Number, error: Number | None = None) -> str:
    """Return a value and its error to the error's first two significant digits.

    ``395.770 ± 0.010``, ``12300 ± 1200``, ``(−1.20 ± 0.15)×10⁻⁹``; four significant digits
    without an error, or with one that only the arithmetic made.
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


def number_and_error(text: str) -> tuple[str, str]:
    """Return what :func:`rounded` wrote as two texts, each with the power of ten that they share.

    The second is empty where there is no error.
    """
    number, _, error = text.partition(" ± ")
    error, _, power = error.partition(")")
    return number.removeprefix("(") + power, error + power


def power_of_ten(exponent: int) -> str:
    """Return a power of ten as it is written: ``10⁻⁹``."""
    return f"10{str(exponent).translate(SUPERSCRIPT)}"


def as_printed(text: str) -> str:
    """Return a number with a minus sign and a power of ten, where Python wrote ``-`` and ``e``."""
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa.replace("-", "−")
    return f"{mantissa}×{power_of_ten(int(exponent))}" if exponent else mantissa


def counted(number: int | str, noun: str, several: str = "") -> str:
    """Return a number, as text or not, with its noun: ``1 token``, ``1,024 tokens``.

    ``several`` is the plural of a noun that has another one than with an ``s``.
    """
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {noun if text == '1' else several or noun + 's'}"


def value_text(result: Result, name: str) -> str:
    """Return one number of a result with its standard error, such as ``93.20 ± 0.41``."""
    error = float(result.errors[name]) if name in result.errors else None
    return rounded(float(result.values[name]), error)


def bias_text(bias: Number | np.ndarray | None, error: Number | np.ndarray | None = None) -> str:
    """Return a bias to two significant digits, or to those of the error; empty if not known."""
    known = math.nan if bias is None else float(bias)
    if not math.isfinite(known):
        return ""
    return as_printed(f"{0.0 + rounded_to(known, error):.2g}")


def rounded_to(value: Number, error: Number | np.ndarray | None) -> float:
    """Return a number rounded to its error's first two significant digits, if that is known."""
    known = math.nan if error is None else float(error)
    if not 0 < known < math.inf:
        return float(value)
    return round(float(value), _digits(known))


def _digits(error: float) -> int:
    """Return after how many decimals an error's second significant digit stands."""
    return 1 - math.floor(math.log10(float(f"{error:.1e}")))


def with_bias(
    text: str, bias: Number | np.ndarray | None, error: Number | np.ndarray | None
) -> str:
    """Return a number's text with its bias where that is known: ``93.20 ± 0.41, bias 0.12``."""
    return f"{text}, bias {told}" if (told := bias_text(bias, error)) else text


def value_and_bias(result: Result, name: str) -> str:
    """Return one number of a result with its standard error, and its bias where it is known."""
    return with_bias(value_text(result, name), result.biases.get(name), result.errors.get(name))


def texts_of(result: Result, name: str) -> np.ndarray:
    """Return every number of a result as text, rounded to its error, in the value's shape."""
    values = result.values[name]
    errors = result.errors.get(name, np.full(values.shape, np.nan))
    texts = [
        rounded(float(v), float(e)) for v, e in zip(values.ravel(), errors.ravel(), strict=True)
    ]
    return np.array(texts, dtype=object).reshape(values.shape)
