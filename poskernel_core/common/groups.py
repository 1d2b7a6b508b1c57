"""Windows in groups of alike size, so that errors count texts and not windows."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = [
    "GROUPS",
    "Dealt",
    "first_in_equal_groups",
    "first_of_all",
    "groups_of",
    "in_equal_groups",
]

GROUPS = 10
"""Groups that texts are dealt to: window ``w`` of a run belongs to group ``w % groups``."""

Dealt = Literal["documents", "stretches", "windows"]
"""What groups are made of: whole documents, stretches of fewer than ten documents, or windows that
have nothing to do with each other."""


def groups_of(windows: int) -> int:
    """Return how many groups so many windows make: ten, or one of each where they are fewer."""
    return min(GROUPS, windows)


def in_equal_groups(windows: int) -> int:
    """Return how many of so many windows are read: all groups have equally many."""
    return windows - windows % groups_of(windows) if windows else 0


def first_of_all(count: int, windows: int) -> int:
    """Return how many first windows are taken for ``count`` where all groups give equally many.

    That is one of each group at least, and else no more than ``count``.
    """
    groups = groups_of(windows)
    return max(1, min(count, windows) // groups) * groups


def first_in_equal_groups(windows: np.ndarray, count: int) -> np.ndarray:
    """Return about the first ``count`` windows of a run: all groups have equally many of them."""
    return windows[: in_equal_groups(min(count, len(windows)))]
