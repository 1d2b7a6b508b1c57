"""Read from a model's mask which keys each layer's queries see.

transformers describes a mask by a function of positions. The function is evaluated for all pairs of
positions, one block of rows at a time. The mask must be one that our attention supports: causal
over all keys, over a sliding window, or over chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from poskernel_core.common.attention import ScoreRule, is_hidden
from poskernel_core.common.errors import UnsupportedModel

ROWS = 256
FAR = 20_000_000
"""A position beyond every window."""


@dataclass(frozen=True)
class MaskSpec:
    """Which keys are visible under a mask.

    Attributes:
        window: number of visible keys, including the query's own position; None for all.
        chunk: chunk length if a query sees only the keys of its chunk, or None.
        known: whether the mask is supported. An unsupported one is no error until a layer uses it.
    """

    window: int | None = None
    chunk: int | None = None
    known: bool = True

    def __getitem__(self, rows: Any) -> MaskSpec:
        """Return the mask of all rows, which Gemma 4 asks for before layers that share keys."""
        if any(index not in (slice(None), slice(0, None)) for index in rows):
            raise self._changed()
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "to":  # accelerate asks whether it can be moved
            raise AttributeError(name)
        raise self._changed()

    def __radd__(self, other: Any) -> Any:
        raise self._changed()

    def _changed(self) -> UnsupportedModel:
        return UnsupportedModel(
            "The model computes with its mask, so that which keys are seen depends on more than "
            "their places, as where an index chooses them or a prompt is read in both directions: "
            "choose another model."
        )


def mask_spec_of(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., torch.Tensor],
    device: Any = "cpu",
    **_further: Any,
) -> MaskSpec:
    """Return the visible keys of a transformers mask; transformers calls this to create a mask."""
    if q_length != kv_length:
        return MaskSpec(known=False)
    if torch.device(device).type == "meta":
        return _expected(mask_function)
    none = torch.zeros(1, 1, dtype=torch.long, device=device)
    keys = torch.arange(kv_length, device=device)[None, :]
    starts: list[int] = []
    for first in range(0, q_length, ROWS):
        rows = torch.arange(first, min(first + ROWS, q_length), device=device)[:, None]
        seen = torch.as_tensor(mask_function(none, none, rows, keys), device=device)
        seen = seen.expand(len(rows), kv_length)
        starts += seen.int().argmax(dim=-1).tolist()
        mask = _causal_mask(starts)
        if bool((seen == is_hidden(rows, keys, mask.window, mask.chunk)).any()):
            return MaskSpec(known=False)
    mask = _causal_mask(starts)
    rule = ScoreRule(1.0, mask.window, mask.chunk)
    return mask if starts == [*map(rule.first_visible, range(q_length))] else MaskSpec(known=False)


def _expected(mask_function: Callable[..., torch.Tensor]) -> MaskSpec:
    """Return the mask that three of its entries tell, for any length, where nothing is computed."""
    first = torch.zeros(1, 1, dtype=torch.long, device="cpu")

    def sees(query: int, key: int) -> bool:
        return bool(mask_function(first, first, first + query, first + key))

    if sees(0, 1) or not sees(0, 0):
        return MaskSpec(known=False)
    if sees(FAR, 0):
        return MaskSpec()
    near, cut = 0, FAR
    while cut - near > 1:
        middle = (near + cut) // 2
        near, cut = (middle, cut) if sees(middle, 0) else (near, middle)
    return MaskSpec(window=cut) if cut == 1 or sees(cut, 1) else MaskSpec(chunk=cut)


def _causal_mask(starts: list[int]) -> MaskSpec:
    cut = next((n for n, low in enumerate(starts) if low > 0), None)
    if cut is None:
        return MaskSpec()
    return MaskSpec(window=cut) if starts[cut] == 1 else MaskSpec(chunk=cut)
