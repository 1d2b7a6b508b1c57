"""Smooth positional embeddings: waves faster than wanted are taken out of W_pos as it is trained.

A small model finds its previous token by embeddings that alternate from one position to the next.
GPT-2 does not: its positions draw a smooth helix, and heads tell neighbours apart by the causal
mask. Without the fast waves, a small model has to do so, too.
"""

from functools import lru_cache

import scipy.fft
import torch
from torch import Tensor

EASING = 0.2
"""Share of the training over which the waves are taken out, the fastest first."""


def waves_kept(least: int, all_waves: int, progress: float) -> int:
    """How many of the waves are left at this point of the training (0 to 1)."""
    left = max(0.0, 1 - progress / EASING)
    return least + round((all_waves - least) * left**3)


@torch.no_grad()
def smooth_positions(rows: Tensor, waves: int) -> None:
    """Keep the slowest waves of the embeddings [position, width], in place.

    The first row stands for the start token and is left alone.
    """
    slow = _slow_waves(len(rows) - 1, waves).to(rows)
    rows[1:] = slow.T @ (slow @ rows[1:])


@lru_cache(maxsize=1)
def _slow_waves(positions: int, waves: int) -> Tensor:
    """The slowest cosine waves, orthonormal, [wave, position]."""
    basis = scipy.fft.idct(torch.eye(positions, dtype=torch.float64).numpy(), norm="ortho", axis=0)
    return torch.from_numpy(basis.T[:waves].copy())
