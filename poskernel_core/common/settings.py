"""The environment variables of PosKernel, each read and checked in one place.

``POSKERNEL_CACHE`` and the two lists, ``POSKERNEL_MODELS`` and ``POSKERNEL_CORPORA``, may hold
anything: what they name is looked for when it is used, and their paths once at a server's start.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.limits import (
    limits,
    most_requests_each,
    most_sessions,
    most_sessions_each,
)
from poskernel_core.common.renamed import MODELS, VARIABLES, told
from poskernel_core.common.specs import brief, is_device, plain_python
from poskernel_core.common.variables import quantity, switch

__all__ = [
    "access_log",
    "address",
    "allow_any_model",
    "allow_disk",
    "cache_gb",
    "check_paths",
    "check_settings",
    "checked_address",
    "checked_gb",
    "checkpoint_seconds",
    "device",
    "keep_notes",
    "keep_texts",
    "memory_gb",
    "metrics_address",
    "open_browser",
    "read_only",
    "short_addresses",
    "trusted_proxies",
    "use_shipped",
    "user_header",
]

DEFAULT_CACHE_GB = 8.0
DEFAULT_CHECKPOINT_SECONDS = 5.0
MOST_GB = 1e6
MOST_SECONDS = 86_400.0
MOST_PORT = 65_535
PATHS = ("/", "./", "../", "~/")
"""How a name begins that can be nothing but a path."""


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
    text = str(text)  # Python hands over anything
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
    return quantity(
        "POSKERNEL_CACHE_GB",
        DEFAULT_CACHE_GB,
        f"a size in GB above 0, up to {MOST_GB:,.0f}",
        lambda size: 0 < size <= MOST_GB,
    )


def checked_gb(size: Any) -> float:
    """Return the size limit that a program gives the store.

    Raises:
        BadRequest: not a size.
    """
    number = plain_python(size)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MOST_GB:
        raise BadRequest(
            f"Expected a size in GB above 0, up to {MOST_GB:,.0f}, as 'limit_gb', got "
            f"{brief(size)}."
        )
    return number


def checkpoint_seconds() -> float:
    """Return ``POSKERNEL_CHECKPOINT_SECONDS``: the pause between checkpoints of a pass.

    Raises:
        BadRequest: not a number of seconds.
    """
    return quantity(
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
    return quantity(
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
    return switch("POSKERNEL_ALLOW_ANY_MODEL", default=False)


def keep_notes(*, alone: bool) -> bool:
    """Return ``POSKERNEL_NOTES``: whether readers write notes; unless told, only where ``alone``.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_NOTES", default=alone)


def keep_texts() -> bool:
    """Return ``POSKERNEL_KEEP_TEXTS``: whether typed texts are kept, so that links are short.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_KEEP_TEXTS", default=True)


def read_only() -> bool:
    """Return ``POSKERNEL_READ_ONLY``: whether only what was computed before is shown.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_READ_ONLY", default=False)


def open_browser() -> bool:
    """Return ``POSKERNEL_OPEN``: whether a server opens its address in a browser of this machine.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_OPEN", default=False)


def use_shipped() -> bool:
    """Return ``POSKERNEL_SHIPPED``: whether the results that come with the project are shown.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_SHIPPED", default=True)


def check_paths() -> None:
    """Check the paths that the two lists have among their names, and names of models by their age.

    A server does so at its start: one that vanishes later stops nothing but itself.

    Raises:
        BadRequest: a path at which nothing is, or an old name.
    """
    lists = {name: os.environ.get(name, "") for name in ("POSKERNEL_MODELS", "POSKERNEL_CORPORA")}
    for name, path in ((n, each.strip()) for n, text in lists.items() for each in text.split(",")):
        if path.startswith(PATHS) and not os.path.exists(os.path.expanduser(path)):
            raise BadRequest(
                f"Expected {name} to name what is there, found nothing at {path[:80]!r}: correct "
                "the path, or take it out."
            )
        if (new := told(path, MODELS)) and name == "POSKERNEL_MODELS" and not os.path.isdir(path):
            raise BadRequest(f"{name}: {new}")


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


def allow_disk() -> bool:
    """Return ``POSKERNEL_WEIGHTS_ON_DISK``: whether weights that fit nowhere are read as they run.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_WEIGHTS_ON_DISK", default=False)


def access_log() -> str | None:
    """Return ``POSKERNEL_ACCESS_LOG``: a file, ``-`` for standard output; None: no such log."""
    return os.environ.get("POSKERNEL_ACCESS_LOG", "").strip() or None


def short_addresses() -> bool:
    """Return ``POSKERNEL_SHORT_ADDRESSES``: whether the access log shortens visitors' addresses.

    Raises:
        BadRequest: neither on nor off.
    """
    return switch("POSKERNEL_SHORT_ADDRESSES", default=False)


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


def trusted_proxies() -> tuple[str, ...]:
    """Return ``FORWARDED_ALLOW_IPS``: the proxies that are believed about who asks, or ``*``.

    uvicorn reads it, and takes what is no address for a name that nobody ever has.

    Raises:
        BadRequest: one is neither an address nor a network.
    """
    text = os.environ.get("FORWARDED_ALLOW_IPS", "")
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in found if found != ("*",) else ():
        try:
            (ipaddress.ip_network if "/" in each else ipaddress.ip_address)(each)
        except ValueError as error:
            raise BadRequest(
                "Expected FORWARDED_ALLOW_IPS to be addresses and networks of proxies, such as "
                "'10.1.2.3' and '10.0.0.0/8', with commas between, or '*' alone; "
                f"got {each[:80]!r}."
            ) from error
    return found


def check_settings() -> None:
    """Read every variable, so that a wrong one is reported before anything is done.

    Raises:
        BadRequest: one of them is wrong, or goes by an old name; the message names it.
    """
    for old, new in VARIABLES.items():
        if os.environ.get(old, "").strip():
            raise BadRequest(f"{old} is called {new} now.")
    checks: tuple[Callable[[], object], ...] = (
        address,
        device,
        cache_gb,
        checkpoint_seconds,
        memory_gb,
        allow_any_model,
        allow_disk,
        keep_texts,
        open_browser,
        read_only,
        use_shipped,
        most_sessions,
        most_sessions_each,
        most_requests_each,
        short_addresses,
        metrics_address,
        user_header,
        trusted_proxies,
        limits,
        partial(keep_notes, alone=False),
    )
    for read in checks:
        read()
