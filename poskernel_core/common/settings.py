"""The environment variables of PosKernel, each read and checked in one place.

``POSKERNEL_CACHE`` and the two lists, ``POSKERNEL_MODELS`` and ``POSKERNEL_CORPORA``, may hold
anything: what they name is looked for when it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import is_device

__all__ = ["allow_any_model", "cache_gb", "check_settings", "checkpoint_seconds", "device"]

DEFAULT_CACHE_GB = 8.0
DEFAULT_CHECKPOINT_SECONDS = 5.0
MOST_CACHE_GB = 1e6
MOST_SECONDS = 86_400.0


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


def cache_gb() -> float:
    """Return ``POSKERNEL_CACHE_GB``: the size limit of the store.

    Raises:
        BadRequest: not a size.
    """
    return _number(
        "POSKERNEL_CACHE_GB",
        DEFAULT_CACHE_GB,
        f"a size in GB above 0, up to {MOST_CACHE_GB:,.0f}",
        lambda size: 0 < size <= MOST_CACHE_GB,
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


def allow_any_model() -> bool:
    """Return ``POSKERNEL_ALLOW_ANY_MODEL``: whether visitors may name any model.

    Raises:
        BadRequest: neither on nor off.
    """
    text = os.environ.get("POSKERNEL_ALLOW_ANY_MODEL", "").strip()
    if text not in ("", "0", "1"):
        raise BadRequest(
            f"Expected POSKERNEL_ALLOW_ANY_MODEL to be 1 (on) or 0 (off), got {text!r}."
        )
    return text == "1"


def check_settings() -> None:
    """Read every variable, so that a wrong one is reported before anything is done.

    Raises:
        BadRequest: one of them is wrong; the message names it.
    """
    for read in (device, cache_gb, checkpoint_seconds, allow_any_model):
        read()


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
