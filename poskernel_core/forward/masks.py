"""Which keys a layer's queries see, read from the mask that its model makes.

transformers describes a mask by a function of positions. It is looked at for every pair of the
texts that run, a block of rows at a time, and must be one of those that our attention knows: causal
over all keys, over a sliding window, or over chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from poskernel_core.common.attention import ScoreRule, first_visible
from poskernel_core.common.errors import UnsupportedModel

__all__ = ["Sight", "sight_of"]

ROWS = 256


@dataclass(frozen=True)
class Sight:
    """What a mask lets queries see.

    Attributes:
        window: how many keys, the query's own included; None for all.
        chunk: length of the chunks beyond whose start nothing is seen, or None.
    """

    window: int | None = None
    chunk: int | None = None


def sight_of(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., torch.Tensor],
    device: Any = "cpu",
    **_further: Any,
) -> Sight:
    """Return what a mask of transformers lets queries see; it takes the place of the mask.

    Raises:
        UnsupportedModel: it is no causal mask over all keys, a window, or chunks.
    """
    if q_length != kv_length:
        raise UnsupportedModel(
            f"The model masks {q_length} queries by {kv_length} keys: PosKernel reads attention of "
            "a text to itself alone; choose a decoder."
        )
    none = torch.zeros(1, 1, dtype=torch.long, device=device)
    keys = torch.arange(kv_length, device=device)[None, :]
    sight: Sight | None = None
    starts: list[int] = []
    for first in range(0, q_length, ROWS):
        rows = torch.arange(first, min(first + ROWS, q_length), device=device)[:, None]
        seen = torch.as_tensor(mask_function(none, none, rows, keys), device=device)
        seen = seen.expand(len(rows), kv_length)
        starts += seen.int().argmax(dim=-1).tolist()
        sight = _sight(starts)
        hidden = ScoreRule(1.0, sight.window, sight.chunk).is_hidden(rows, keys)
        if bool((seen == hidden).any()):
            raise _unknown()
    sight = _sight(starts)
    if any(
        low != first_visible(n, 0, sight.window, sight.chunk) for n, low in enumerate(starts)
    ):
        raise _unknown()
    return sight


def _sight(starts: list[int]) -> Sight:
    """Return what gives the first visible keys of the rows 0, 1, ..."""
    cut = next((n for n, low in enumerate(starts) if low > 0), None)
    if cut is None:
        return Sight()
    return Sight(window=cut) if starts[cut] == 1 else Sight(chunk=cut)


def _unknown() -> UnsupportedModel:
    return UnsupportedModel(
        "The model masks its attention in a way that PosKernel does not know (it knows causal "
        "masks over all keys, over a sliding window, and over chunks): choose another model."
    )
