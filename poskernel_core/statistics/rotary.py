"""Means of the rotary pairs of queries and keys before rotation, and of their lengths."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.common.specs import MAX_SKIP
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch
from poskernel_core.forward.rotation import Rotation
from poskernel_core.statistics.base import Sizes, Statistic, Sums

PARTS = 4
"""Parts per pair: its two numbers, its squared length, its length."""


class RotaryPairs(Statistic):
    """Rotary pairs before the rotation.

    * ``pair_speed [layer, pair]``: rotation of a pair in radians per token; NaN for pairs that are
      not rotated. ``pair_factor [layer, pair]``: scaling factor of queries, and also of keys.
    * ``query_pairs [layer, skip, head, pair, part]``, ``key_pairs [layer, skip, kv, pair, part]``:
      means over texts and over the positions from ``skip`` on (0 to 32); NaN without positions. The
      parts are the two numbers of a pair (the real and the imaginary part of ``u_r`` or ``v_r``),
      its squared length and its length.

    Source: ours; the pairs and their lengths as in "Round and round we go! What makes rotary
    positional encodings useful?" (2410.06205).
    """

    name = "rotary"
    means: ClassVar = {
        "rotation_sum": "pair_facts",
        "query_pair_sum": "query_pairs",
        "key_pair_sum": "key_pairs",
    }
    alone = frozenset({"pair_facts"})
    grain = 2.0**-20
    wants_rotations = True

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        super().__init__(sizes, device)
        self._rotations: dict[int, Rotation] = {}

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        self._rotations[layer] = rotation
        speed, factor = rotation.speeds()
        facts = np.stack([speed, factor, np.ones_like(speed)], axis=-1) * len(batch.samples)
        self.add("rotation_sum", layer, torch.from_numpy(facts), slice(len(speed)))

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        rotation = self._rotations.pop(call.layer, None)
        if rotation is None:  # a layer without rotation
            return
        for name, x in (("query_pair_sum", call.q), ("key_pair_sum", call.k)):
            wide = self.sums[name].dtype
            parts = _parts(*rotation.turned_back(x)).to(self.device)
            at = slice(None), slice(parts.shape[-2])
            first = parts[:, :, :MAX_SKIP].sum(dim=0, dtype=wide).transpose(0, 1)
            self.add(name, call.layer, first, slice(len(first)), *at)
            later = parts[:, :, MAX_SKIP:].sum(dim=(0, 2), dtype=wide)
            self.add(name, call.layer, later[None], slice(MAX_SKIP, None), *at)

    @classmethod
    def finish(cls, blocks: Sequence[Sums], sizes: Sizes, windows: int) -> dict[str, np.ndarray]:
        arrays = super().finish(blocks, sizes, windows)
        facts = arrays.pop("pair_facts")
        turned = facts[..., 2] > 0
        for place, name in enumerate(("pair_speed", "pair_factor")):
            arrays[name] = np.where(turned, facts[..., place], np.nan).astype(np.float32)
        return arrays

    @classmethod
    def average(cls, name: str, means: np.ndarray, sizes: Sizes) -> dict[str, np.ndarray]:
        """Average over the positions from each skip on."""
        if name != "pair_facts":  # [layer, group, skip, head, pair, part]
            means = np.flip(np.flip(means, axis=2).cumsum(axis=2), axis=2)
            left = sizes.context - np.arange(MAX_SKIP + 1)
            means = means / np.where(left > 0, left, np.nan)[:, None, None, None]
        return super().average(name, means, sizes)


def _parts(
    one: Float[Tensor, "text head pos pair"], two: Float[Tensor, "text head pos pair"]
) -> Float[Tensor, "text head pos pair part"]:
    power = one.square() + two.square()
    return torch.stack([one, two, power, power.sqrt()], dim=-1)
