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

from poskernel_core.common.attention import first_visible, is_hidden
from poskernel_core.common.errors import UnsupportedModel

__all__ = ["Sight", "sight_of"]

ROWS = 256


@dataclass(frozen=True)
class Sight:
    """What a mask lets queries see.

    Attributes:
        window: how many keys, the query's own included; None for all.
        chunk: length of the chunks beyond whose start nothing is seen, or None.
        known: whether this is all that the mask does. Models make masks that no layer uses.
    """

    window: int | None = None
    chunk: int | None = None
    known: bool = True

    def require_known(self) -> Sight:
        """Return what is seen, if our attention knows it.

        Raises:
            UnsupportedModel: the mask is none of those that it knows.
        """
        if self.known:
            return self
        raise UnsupportedModel(
            "The model masks its attention in a way that PosKernel does not know (it knows causal "
            "masks over all keys, over a sliding window, and over chunks): choose another model."
        )


def sight_of(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., torch.Tensor],
    device: Any = "cpu",
    **_further: Any,
) -> Sight:
    """Return what a mask of transformers lets queries see; it takes the place of the mask."""
    if q_length != kv_length:
        return Sight(known=False)
    none = torch.zeros(1, 1, dtype=torch.long, device=device)
    keys = torch.arange(kv_length, device=device)[None, :]
    starts: list[int] = []
    for first in range(0, q_length, ROWS):
        rows = torch.arange(first, min(first + ROWS, q_length), device=device)[:, None]
        seen = torch.as_tensor(mask_function(none, none, rows, keys), device=device)
        seen = seen.expand(len(rows), kv_length)
        starts += seen.int().argmax(dim=-1).tolist()
        sight = _sight(starts)
        if bool((seen == is_hidden(rows, keys, sight.window, sight.chunk)).any()):
            return Sight(known=False)
    sight = _sight(starts)
    lows = [first_visible(n, 0, sight.window, sight.chunk) for n in range(q_length)]
    return sight if lows == starts else Sight(known=False)


def _sight(starts: list[int]) -> Sight:
    """Return what gives the first visible keys of the rows 0, 1, ..."""
    cut = next((n for n, low in enumerate(starts) if low > 0), None)
    if cut is None:
        return Sight()
    return Sight(window=cut) if starts[cut] == 1 else Sight(chunk=cut)
