"""Windows of tokens that are made, not read: one token repeated, and doubled tokens."""

from __future__ import annotations

import numpy as np

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest

__all__ = ["RANDOM", "REPEATED", "doubled", "repeated_windows"]

REPEATED = "repeated"
"""Name of the corpus whose windows are one token each, repeated."""

RANDOM = "random"
"""Name of the corpus whose windows are random tokens, every one another."""


def repeated_windows(
    vocabulary: int, *, context: int, windows: int, avoid: int | None, seed: int = 0
) -> Tokens:
    """Return windows ``[windows, context]`` of one token each, all different.

    ``avoid`` is a token that is never repeated: the start token, which a model knows from the first
    place only.

    Raises:
        BadRequest: more windows than there are tokens.
    """
    choice = np.setdiff1d(np.arange(vocabulary), [] if avoid is None else [avoid])
    if windows > len(choice):
        raise BadRequest(
            f"Expected at most {len(choice)} different tokens to repeat, got {windows}: ask for "
            "fewer."
        )
    tokens = np.random.default_rng(seed).choice(choice, size=windows, replace=False)
    return np.repeat(tokens[:, None].astype(np.int64), context, axis=1)


def doubled(windows: Tokens, every: int, *, first: int) -> Tokens:
    """Return windows in which one of ``every`` tokens is replaced by a copy of its predecessor.

    ``first`` is the first position that holds text (1 after a start token); the replaced positions
    are ``first + every``, ``first + 2 * every`` and so on.
    """
    changed = windows.copy()
    places = np.arange(first + every, windows.shape[1], every)
    changed[:, places] = windows[:, places - 1]
    return changed
