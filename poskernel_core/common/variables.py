"""One environment variable of each sort: on or off, a whole number, a quantity."""

from __future__ import annotations

import os
from collections.abc import Callable

from poskernel_core.common.errors import BadRequest

__all__ = ["count", "quantity", "switch"]

MOST_COUNTED = 1_000_000


def switch(name: str, *, default: bool) -> bool:
    """Return whether a variable is 1 (on) or 0 (off); ``default`` where it is not set.

    Raises:
        BadRequest: it is neither.
    """
    text = os.environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise BadRequest(f"Expected {name} to be 1 (on) or 0 (off), got {text!r}.")
    return text == "1" if text else default


def count(name: str, default: int, what: str) -> int:
    """Return how many of ``what`` a variable allows; 0 stands for any number.

    Raises:
        BadRequest: no whole number, or too large a one.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else -1
    if not 0 <= number <= MOST_COUNTED:
        raise BadRequest(
            f"Expected {name} to be a number of {what} up to {MOST_COUNTED:,}, or 0 for any, got "
            f"{text[:80]!r}."
        )
    return number


def quantity(name: str, default: float, expected: str, fits: Callable[[float], bool]) -> float:
    """Return the quantity that a variable sets, which ``fits``; errors say what was ``expected``.

    Raises:
        BadRequest: no number, or one that does not fit.
    """
    text = os.environ.get(name, "").strip()
    try:
        number = float(text) if text.isascii() else float("nan")
    except ValueError:
        number = float("nan")
    if not text:
        return default
    if not fits(number):
        raise BadRequest(f"Expected {name} to be {expected}, got {text!r}.")
    return number
