"""Generated windows of tokens: one token repeated, or a text with doubled tokens."""

import numpy as np

from poskernel_core.common.axes import Tokens
from poskernel_core.common.groups import in_equal_groups

REPEATED = "repeated"
"""Name of the corpus in which each window is a single repeated token."""

RANDOM = "random"
"""Name of the corpus in which each window is a sequence of different random tokens."""


DRAWN_TOGETHER = 100
"""Repeated tokens that are drawn at a time; more are drawn from the rest."""


def repeated_windows(
    vocabulary: int, *, context: int, windows: int, avoid: int | None, seed: int = 0
) -> Tokens:
    """Return windows ``[windows, context]``, each a single repeated token, all different.

    They are the first of those of any larger number of windows. A vocabulary with fewer tokens
    gives fewer windows, in groups of equal size.

    ``avoid`` is a token that is never chosen: the start token, which a model has seen only at the
    first position.
    """
    choice = np.setdiff1d(np.arange(vocabulary), [] if avoid is None else [avoid])
    if windows > len(choice):
        windows = in_equal_groups(len(choice))
    generator = np.random.default_rng(seed)
    first = generator.choice(choice, size=min(DRAWN_TOGETHER, len(choice)), replace=False)
    rest = generator.permutation(np.setdiff1d(choice, first))
    tokens = np.concatenate([first, rest])[:windows].astype(np.int64)
    return np.repeat(tokens[:, None], context, axis=1)


def doubled(windows: Tokens, every: int, *, first: int) -> Tokens:
    """Return windows in which every ``every``-th token is a copy of its predecessor.

    ``first`` is the first position of the text (1 with a start token). The replaced positions are
    ``first + every``, ``first + 2 * every`` and so on.
    """
    changed = windows.copy()
    places = np.arange(first + every, windows.shape[1], every)
    changed[:, places] = windows[:, places - 1]
    return changed
