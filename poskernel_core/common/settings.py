"""The environment variables of PosKernel, each read and checked in one place.

``POSKERNEL_CACHE`` and the two lists, ``POSKERNEL_MODELS`` and ``POSKERNEL_CORPORA``, may hold
anything: what they name is looked for when it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import is_device

__all__ = [
    "BOUNDS",
    "Bound",
    "Limits",
    "access_log",
    "address",
    "allow_any_model",
    "allow_disk",
    "cache_gb",
    "check_settings",
    "checked_address",
    "checkpoint_seconds",
    "device",
    "keep_notes",
    "keep_texts",
    "limits",
    "memory_gb",
    "metrics_address",
    "most_requests_each",
    "most_sessions",
    "most_sessions_each",
    "public",
    "read_only",
    "short_addresses",
    "user_header",
]

DEFAULT_CACHE_GB = 8.0
DEFAULT_CHECKPOINT_SECONDS = 5.0
MOST_GB = 1e6
MOST_SECONDS = 86_400.0
DEFAULT_SESSIONS = 200
DEFAULT_SESSIONS_EACH = 40
DEFAULT_REQUESTS_EACH = 600
MOST_COUNTED = 1_000_000
MOST_PORT = 65_535


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
    "open": Bound("POSKERNEL_MOST_OPEN", 96, 32, "computations of one visitor that wait or run"),
    "open_in_all": Bound(
        "POSKERNEL_MOST_OPEN_IN_ALL", 512, 256, "computations of all visitors that wait or run"
    ),
    "windows": Bound("POSKERNEL_MOST_WINDOWS", None, 500, "windows of text of one computation"),
    "tokens": Bound(
        "POSKERNEL_MOST_TOKENS",
        None,
        4_000_000,
        "tokens that the model reads for one computation: windows times context, over all passes",
    ),
    "samples": Bound(
        "POSKERNEL_MOST_SAMPLES", None, 2_000, "sequences of an experiment on random tokens"
    ),
    "characters": Bound("POSKERNEL_MOST_CHARACTERS", 100_000, 20_000, "characters of a typed text"),
    "texts": Bound("POSKERNEL_MOST_TEXTS", 10_000, 10_000, "typed texts that are kept"),
    "texts_mb": Bound("POSKERNEL_TEXTS_MB", 100, 100, "megabytes of typed texts that are kept"),
    "tables_mb": Bound(
        "POSKERNEL_TABLES_MB", 40, 10, "megabytes of tables that one visit lays beside ours"
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


def device() -> str:
    """Return ``POSKERNEL_DEVICE``: where runs are carried out by default.

    Raises:
        BadRequest: not the name of a device.
    """
    name = os.environ.get("POSKERNEL_DEVICE", "").strip() or "auto"
    if not is_device(name):
        raise BadRequest(
            f"Expected POSKERNEL_DEVICE to be a device such as auto, cpu, cuda or cuda:1, got "
            f"{name!r}."
        )
    return name


def address() -> str | None:
    """Return ``POSKERNEL_ADDRESS``: where the dashboard is served, for links to it; None: nowhere.

    Raises:
        BadRequest: not an address.
    """
    text = os.environ.get("POSKERNEL_ADDRESS", "").strip()
    return checked_address(text, "POSKERNEL_ADDRESS") if text else None


def checked_address(text: str, name: str = "the address") -> str:
    """Return the address of a dashboard without a slash at its end.

    Raises:
        BadRequest: not an address; the sentence calls it ``name``.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise BadRequest(
            f"Expected {name} to be that of a dashboard, such as http://localhost:8501, got "
            f"{text[:80]!r}."
        )
    return text.rstrip("/")


def cache_gb() -> float:
    """Return ``POSKERNEL_CACHE_GB``: the size limit of the store.

    Raises:
        BadRequest: not a size.
    """
    return _number(
        "POSKERNEL_CACHE_GB",
        DEFAULT_CACHE_GB,
        f"a size in GB above 0, up to {MOST_GB:,.0f}",
        lambda size: 0 < size <= MOST_GB,
    )


def checkpoint_seconds() -> float:
    """Return ``POSKERNEL_CHECKPOINT_SECONDS``: the pause between checkpoints of a pass.

    Raises:
        BadRequest: not a number of seconds.
    """
    return _number(
        "POSKERNEL_CHECKPOINT_SECONDS",
        DEFAULT_CHECKPOINT_SECONDS,
        f"seconds from 0 to {MOST_SECONDS:,.0f}",
        lambda pause: 0 <= pause <= MOST_SECONDS,
    )


def memory_gb() -> float:
    """Return ``POSKERNEL_MEMORY_GB``: what weights may take of each device's memory; else all.

    Raises:
        BadRequest: not a size.
    """
    return _number(
        "POSKERNEL_MEMORY_GB",
        MOST_GB,
        f"a size in GB above 0, up to {MOST_GB:,.0f}",
        lambda size: 0 < size <= MOST_GB,
    )


def allow_any_model() -> bool:
    """Return ``POSKERNEL_ALLOW_ANY_MODEL``: whether visitors may name any model.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_ALLOW_ANY_MODEL", default=False)


def keep_notes(*, alone: bool) -> bool:
    """Return ``POSKERNEL_NOTES``: whether readers write notes; unless told, only where ``alone``.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_NOTES", default=alone)


def keep_texts() -> bool:
    """Return ``POSKERNEL_KEEP_TEXTS``: whether typed texts are kept, so that links are short.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_KEEP_TEXTS", default=True)


def read_only() -> bool:
    """Return ``POSKERNEL_READ_ONLY``: whether only what was computed before is shown.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_READ_ONLY", default=False)


def public() -> bool:
    """Return ``POSKERNEL_PUBLIC``: whether strangers reach this server, and bounds are tighter.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_PUBLIC", default=False)


def user_header() -> str | None:
    """Return ``POSKERNEL_USER_HEADER``: where a trusted proxy names who has signed in; else None.

    Raises:
        BadRequest: not the name of a header.
    """
    name = os.environ.get("POSKERNEL_USER_HEADER", "").strip()
    if not re.fullmatch(r"[A-Za-z0-9-]{0,64}", name):
        raise BadRequest(
            "Expected POSKERNEL_USER_HEADER to be the name of a header such as X-Forwarded-User, "
            f"got {name[:80]!r}."
        )
    return name or None


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


def allow_disk() -> bool:
    """Return ``POSKERNEL_WEIGHTS_ON_DISK``: whether weights that fit nowhere are read as they run.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_WEIGHTS_ON_DISK", default=False)


def most_sessions() -> int:
    """Return ``POSKERNEL_SESSIONS``: pages that may be open at once, of all; 0: any number.

    Raises:
        BadRequest: not a whole number.
    """
    return _count("POSKERNEL_SESSIONS", DEFAULT_SESSIONS, "sessions")


def most_sessions_each() -> int:
    """Return ``POSKERNEL_SESSIONS_EACH``: pages that one visitor may have open; 0: any number.

    Raises:
        BadRequest: not a whole number.
    """
    return _count("POSKERNEL_SESSIONS_EACH", DEFAULT_SESSIONS_EACH, "sessions")


def most_requests_each() -> int:
    """Return ``POSKERNEL_REQUESTS_EACH``: requests of one visitor in a minute; 0: any number.

    Raises:
        BadRequest: not a whole number.
    """
    return _count("POSKERNEL_REQUESTS_EACH", DEFAULT_REQUESTS_EACH, "requests a minute")


def access_log() -> str | None:
    """Return ``POSKERNEL_ACCESS_LOG``: a file, ``-`` for standard output; None: no such log."""
    return os.environ.get("POSKERNEL_ACCESS_LOG", "").strip() or None


def short_addresses() -> bool:
    """Return ``POSKERNEL_SHORT_ADDRESSES``: whether the access log shortens visitors' addresses.

    Raises:
        BadRequest: neither on nor off.
    """
    return _switch("POSKERNEL_SHORT_ADDRESSES", default=False)


def metrics_address() -> tuple[str, int] | None:
    """Return ``POSKERNEL_METRICS``: host and port at which Prometheus may ask; None: nowhere.

    Raises:
        BadRequest: not a host and a port.
    """
    text = os.environ.get("POSKERNEL_METRICS", "").strip()
    if not text:
        return None
    host, _, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare) != (bare != host) or not 0 < number <= MOST_PORT:
        raise BadRequest(
            "Expected POSKERNEL_METRICS to be an address and a port such as 127.0.0.1:9464, got "
            f"{text[:80]!r}."
        )
    return bare, number


def check_settings() -> None:
    """Read every variable, so that a wrong one is reported before anything is done.

    Raises:
        BadRequest: one of them is wrong; the message names it.
    """
    checks: tuple[Callable[[], object], ...] = (
        address,
        device,
        cache_gb,
        checkpoint_seconds,
        memory_gb,
        allow_any_model,
        allow_disk,
        keep_texts,
        read_only,
        most_sessions,
        most_sessions_each,
        most_requests_each,
        short_addresses,
        metrics_address,
        user_header,
        limits,
        partial(keep_notes, alone=False),
    )
    for read in checks:
        read()


def _switch(name: str, *, default: bool) -> bool:
    text = os.environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise BadRequest(f"Expected {name} to be 1 (on) or 0 (off), got {text!r}.")
    return text == "1" if text else default


def _count(name: str, default: int, what: str) -> int:
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


def _number(name: str, default: float, expected: str, fits: Callable[[float], bool]) -> float:
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
