"""Equal-sized groups of windows, so that standard errors count texts rather than windows."""

from typing import Literal

import numpy as np

GROUPS = 10
"""Number of groups; window ``w`` of a run belongs to group ``w % groups``."""

Dealt = Literal["documents", "stretches", "windows"]
"""What groups consist of: whole documents, stretches of text (if there are fewer than ten
documents), or independent windows."""


def groups_of(windows: int) -> int:
    """Return the number of groups: ten, or one per window if there are fewer windows."""
    return min(GROUPS, windows)


def in_equal_groups(windows: int) -> int:
    """Return the largest number of windows, up to ``windows``, that gives groups of equal size."""
    return windows - windows % groups_of(windows) if windows else 0


def first_of_all(count: int, windows: int) -> int:
    """Return how many of the first windows to use: up to ``count``, equally many of each group.

    At least one window of each group is used, even if that is more than ``count``.
    """
    groups = groups_of(windows)
    return max(1, min(count, windows) // groups) * groups


def first_in_equal_groups(windows: np.ndarray, count: int) -> np.ndarray:
    """Return about the first ``count`` windows of a run, equally many of each group."""
    return windows[: in_equal_groups(min(count, len(windows)))]


def kept_windows(windows: int, groups: int) -> np.ndarray:
    """Return which windows are kept, ``[kept, window]``: all, and then all but each group's."""
    group = np.arange(windows) % max(1, groups)
    return np.concatenate([np.ones((1, windows), bool), group != np.arange(groups)[:, None]])
