"""Rotary pairs of queries and keys as they are before the rotation: means, powers and sizes."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.common.specs import MAX_SKIP, PAIR_SKIPS
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch
from poskernel_core.forward.rotation import Rotation
from poskernel_core.statistics.base import Plan, Statistic, Sums
from poskernel_core.statistics.moments import GROUPS

__all__ = ["RotaryPairs"]

PARTS = 4
"""Of each pair: its two numbers, their squared length, their length."""


class RotaryPairs(Statistic):
    """Rotary pairs before the rotation.

    The last axis of all but the first two arrays holds the means of both numbers of a pair (the
    real and the imaginary part of ``u_r`` or ``v_r``), of its squared length and of its length.

    * ``pair_speed [layer, pair]``: radians per token by which the model turns a pair; NaN for pairs
      that it does not turn. ``pair_factor``: what queries and keys are scaled by, each.
    * ``query_pairs [layer, skip, head, pair, part]``, ``key_pairs [layer, skip, kv, pair, part]``:
      means over texts and the positions from ``skip`` on, 0 to 32; NaN where there is none.
    * ``query_pairs_without``, ``key_pairs_without [layer, skips, group, ...]``: the same, leaving
      out each of ten groups of texts, for some skips only (:data:`.specs.PAIR_SKIPS`).

    Source: ours; the pairs and their lengths as in "Round and round we go! What makes rotary
    positional encodings useful?" (2410.06205).
    """

    name = "rotary"
    wants_rotations = True

    def __init__(self, plan: Plan, device: torch.device) -> None:
        super().__init__(plan, device)
        self._rotations: dict[int, Rotation] = {}

    def allocate(self) -> dict[str, Tensor]:
        """Return sums over texts and positions, by position and by group of texts."""
        geometry = self.plan.geometry
        queries, keys = (
            (heads, geometry.d_head // 2, PARTS)
            for heads in (geometry.n_heads, geometry.n_kv_heads)
        )
        grouped = (len(PAIR_SKIPS), GROUPS)
        return {
            "rotation_sum": self.zeros(geometry.d_head // 2, 3),
            "query_pair_sum": self.zeros(MAX_SKIP + 1, *queries),
            "key_pair_sum": self.zeros(MAX_SKIP + 1, *keys),
            "query_pair_groups": self.zeros(*grouped, *queries),
            "key_pair_groups": self.zeros(*grouped, *keys),
        }

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        """Keep a layer's rotation until its queries and keys are there, and add its speeds."""
        self._rotations[layer] = rotation
        speed, factor = rotation.speeds()
        facts = np.stack([speed, factor, np.ones_like(speed)], axis=-1) * len(batch.samples)
        total = self.sums["rotation_sum"][layer]
        total[: len(speed)] += torch.from_numpy(facts).to(total)

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Add the pairs of a batch."""
        rotation = self._rotations.pop(call.layer, None)
        if rotation is None:  # a layer that is handed no rotation turns nothing
            return
        group = torch.tensor(batch.samples, device=self.device) % GROUPS
        for name, x in (("query", call.q), ("key", call.k)):
            total, groups = self.sums[f"{name}_pair_sum"], self.sums[f"{name}_pair_groups"]
            parts = _parts(*rotation.turned_back(x)).to(self.device)
            pairs = parts.shape[-2]
            first = parts[:, :, :MAX_SKIP].sum(dim=0, dtype=total.dtype).transpose(0, 1)
            total[call.layer, : len(first), :, :pairs] += first
            later = parts[:, :, MAX_SKIP:].sum(dim=(0, 2), dtype=total.dtype)
            total[call.layer, MAX_SKIP, :, :pairs] += later
            for place, skip in enumerate(PAIR_SKIPS):
                of_texts = parts[:, :, skip:].sum(dim=2, dtype=total.dtype)
                groups[call.layer, place, :, :, :pairs].index_add_(0, group, of_texts)

    @staticmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Divide by the number of texts and positions."""
        turned = sums["rotation_sum"][..., 2] > 0
        speed, factor = (
            np.where(turned, sums["rotation_sum"][..., part] / plan.windows, np.nan)
            for part in (0, 1)
        )
        skips = np.arange(MAX_SKIP + 1)
        found = {"pair_speed": speed, "pair_factor": factor}
        for name in ("query", "key"):
            by_position = sums[f"{name}_pair_sum"]
            from_skip = np.flip(np.flip(by_position, axis=1).cumsum(axis=1), axis=1)
            found[f"{name}_pairs"] = _means(from_skip, plan.windows, plan.context - skips)
            grouped = sums[f"{name}_pair_groups"]
            there = np.array([len(range(g, plan.windows, GROUPS)) for g in range(GROUPS)])
            there = there[there > 0] if plan.windows > 1 else there[:0]
            kept = grouped.sum(axis=2, keepdims=True) - grouped[:, :, : len(there)]
            left = plan.context - np.array(PAIR_SKIPS)
            found[f"{name}_pairs_without"] = _means(
                kept, plan.windows - there, left[:, None] * np.ones_like(there)
            )
        return {name: array.astype(np.float32) for name, array in found.items()}


def _parts(
    one: Float[Tensor, "text head pos pair"], two: Float[Tensor, "text head pos pair"]
) -> Float[Tensor, "text head pos pair part"]:
    """Return both numbers of every pair, their squared length and their length."""
    power = one.square() + two.square()
    return torch.stack([one, two, power, power.sqrt()], dim=-1)


def _means(sums: np.ndarray, texts: int | np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Divide sums ``[layer, *positions.shape, ...]``; NaN where there is no position."""
    count = np.where(positions > 0, texts * positions, np.nan)
    return sums / count.reshape(1, *count.shape, *[1] * (sums.ndim - 1 - count.ndim))
