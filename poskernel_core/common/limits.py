"""What one visitor may have of the server: bounds that the host sets, tighter for strangers."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.variables import count, switch

__all__ = [
    "BOUNDS",
    "Bound",
    "Limits",
    "limits",
    "most_requests_each",
    "most_sessions",
    "most_sessions_each",
    "public",
]

DEFAULT_SESSIONS = 200
DEFAULT_SESSIONS_EACH = 40
DEFAULT_REQUESTS_EACH = 600


@dataclass(frozen=True)
class Bound:
    """What one visitor may have of the server.

    Attributes:
        variable: the environment variable that sets it.
        alone: without the variable; None: no bound.
        public: without the variable where ``POSKERNEL_PUBLIC=1``.
        meaning: what it bounds.
    """

    variable: str
    alone: int | None
    public: int
    meaning: str


BOUNDS: Final = {
    "open": Bound("POSKERNEL_MAX_JOBS", 96, 32, "computations of one visitor that wait or run"),
    "open_in_all": Bound(
        "POSKERNEL_MAX_JOBS_TOTAL", 512, 256, "computations of all visitors that wait or run"
    ),
    "windows": Bound("POSKERNEL_MAX_WINDOWS", None, 500, "windows of text of one computation"),
    "tokens": Bound(
        "POSKERNEL_MAX_TOKENS",
        None,
        4_000_000,
        "tokens that the model reads for one computation: windows times context, over all passes",
    ),
    "samples": Bound(
        "POSKERNEL_MAX_SAMPLES", None, 2_000, "sequences of an experiment on random tokens"
    ),
    "characters": Bound("POSKERNEL_MAX_CHARACTERS", 100_000, 20_000, "characters of a typed text"),
    "texts": Bound("POSKERNEL_MAX_TEXTS", 10_000, 10_000, "typed texts that are kept"),
    "texts_mb": Bound("POSKERNEL_MAX_TEXTS_MB", 100, 100, "megabytes of typed texts that are kept"),
    "tables_mb": Bound(
        "POSKERNEL_MAX_TABLES_MB", 40, 10, "megabytes of tables that one visit lays beside ours"
    ),
}
"""Every bound on a visitor, by its name in :class:`Limits`."""


@dataclass(frozen=True)
class Limits:
    """The bounds of this server, named and explained in :data:`BOUNDS`; None: there is none."""

    open: int
    open_in_all: int
    windows: int | None
    tokens: int | None
    samples: int | None
    characters: int
    texts: int
    texts_mb: int
    tables_mb: int


def public() -> bool:
    """Return ``POSKERNEL_PUBLIC``: whether strangers reach this server, and bounds are tighter.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_PUBLIC", default=False)


def limits() -> Limits:
    """Return what this server does for one visitor; a program that has it to itself has no bound.

    Raises:
        BadRequest: a bound that is no whole number above 0.
    """
    tight = public()
    found = {name: _bound(each, tight=tight) for name, each in BOUNDS.items()}
    return Limits(**found)  # type: ignore[arg-type]  # those without a default of None are numbers


def _bound(bound: Bound, *, tight: bool) -> int | None:
    text = os.environ.get(bound.variable, "").strip()
    if not text:
        return bound.public if tight else bound.alone
    if not re.fullmatch("[0-9]{1,15}", text) or int(text) == 0:
        raise BadRequest(
            f"Expected {bound.variable} to be a whole number above 0 ({bound.meaning}), got "
            f"{text[:80]!r}."
        )
    return int(text)


def most_sessions() -> int:
    """Return ``POSKERNEL_MAX_SESSIONS``: pages that may be open at once, of all; 0: any number.

    Raises:
        BadRequest: not a whole number.
    """
    return count("POSKERNEL_MAX_SESSIONS", DEFAULT_SESSIONS, "sessions")


def most_sessions_each() -> int:
    """Return ``POSKERNEL_MAX_SESSIONS_EACH``: pages that one visitor may have open; 0: any number.

    Raises:
        BadRequest: not a whole number.
    """
    return count("POSKERNEL_MAX_SESSIONS_EACH", DEFAULT_SESSIONS_EACH, "sessions")


def most_requests_each() -> int:
    """Return ``POSKERNEL_MAX_REQUESTS_PER_MINUTE``, of one visitor; 0: any number.

    Raises:
        BadRequest: not a whole number.
    """
    return count("POSKERNEL_MAX_REQUESTS_PER_MINUTE", DEFAULT_REQUESTS_EACH, "requests a minute")
