"""The interventions of the posts, implemented as edits of the forward pass."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.attention import Slopes, repeat_kv
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.rotation import Rotation

Stage = Literal["scores", "pattern"]


def averaged(rows: Tensor, group: int, keep: int = 0) -> Tensor:
    """Return ``rows [pos, model]`` with each row replaced by the mean of its group of positions.

    Groups are consecutive and begin at position ``keep``. Rows before ``keep`` do not change. The
    last group may be smaller.
    """
    parts = [part.mean(dim=0, keepdim=True).expand_as(part) for part in rows[keep:].split(group)]
    return torch.cat([rows[:keep], *parts])


@dataclass(frozen=True, eq=False)
class AveragedPositions(Edit):
    """Positional embeddings averaged in groups of positions.

    ``rows [pos, model]`` is the full ``W_pos``, so a group's mean does not depend on the length of
    the prompt.
    """

    group: int
    rows: Tensor
    keep: int = 0

    def positions(self, x: Tensor) -> Tensor:
        return averaged(self.rows, self.group, self.keep)[: x.shape[-2]].to(x).expand_as(x)


@dataclass(frozen=True, eq=False)
class AveragedStream(Edit):
    """The extended positional embeddings in the stream before one layer, averaged in groups.

    ``rows [pos, model]`` are ``X^l`` up to a constant, for the whole context. Each position's row
    is subtracted from the stream, and the mean of the position's group is added.
    """

    layer: int
    group: int
    rows: Tensor
    keep: int = 0

    def residual(self, layer: int, x: Tensor) -> Tensor:
        if layer != self.layer:
            return x
        change = averaged(self.rows, self.group, self.keep) - self.rows
        return x + change[: x.shape[1]].to(x)


@dataclass(frozen=True)
class PredecessorKnockout(Edit):
    """Knockout of the attention to the predecessor, at every ``every``-th position in some layers.

    With stage ``pattern`` (after the softmax), the attention is set to zero without renormalising,
    as in the post. With stage ``scores`` (before the softmax), the score is set to minus infinity,
    so the other keys take over the attention.
    """

    every: int
    layers: Collection[int]
    stage: Stage

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        return self._cut(layer, scores, -torch.inf) if self.stage == "scores" else scores

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        return self._cut(layer, pattern, 0.0) if self.stage == "pattern" else pattern

    def _cut(self, layer: int, square: Tensor, value: float) -> Tensor:
        if layer not in self.layers:
            return square
        every = range(self.every, square.shape[-2], self.every)
        rows = torch.tensor(every, dtype=torch.long, device=square.device)
        square = square.clone()
        square[..., rows, rows - 1] = value
        return square


@dataclass(frozen=True)
class MovedAttention(Edit):
    """Move one head's attention at chosen rows to chosen keys, and scale the head or its layer.

    With stage ``pattern`` (after the softmax), the new keys share a row's attention equally and
    other keys get none. With stage ``scores`` (before the softmax), the new keys' scores are set to
    the row's largest score plus ``strength``.
    """

    layer: int
    head: int
    moves: Mapping[int, Sequence[int]]
    stage: Stage
    strength: float
    scale: float
    scope: Literal["head", "layer"]

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        if layer != self.layer or self.stage != "scores" or not self.moves:
            return scores
        scores = scores.clone()
        for row, keys in self.moves.items():
            top = scores[:, self.head, row].max(dim=-1, keepdim=True).values
            scores[:, self.head, row, list(keys)] = top + self.strength
        return scores

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        if layer != self.layer or self.stage != "pattern" or not self.moves:
            return pattern
        pattern = pattern.clone()
        for row, keys in self.moves.items():
            pattern[:, self.head, row] = 0.0
            pattern[:, self.head, row, list(keys)] = 1.0 / len(keys)
        return pattern

    def heads(self, layer: int, z: Tensor) -> Tensor:
        if layer != self.layer or self.scope != "head":
            return z
        z = z.clone()
        z[:, self.head] *= self.scale
        return z

    def output(self, layer: int, out: Tensor) -> Tensor:
        return out * self.scale if layer == self.layer and self.scope == "layer" else out


@dataclass(frozen=True, eq=False)
class FixedHeads(Edit):
    """Heads that are the same for every text: their pattern after the softmax, or their output.

    ``patterns`` are rows ``[query, key]``, at least as many as tokens, and ``outputs [d]``, both by
    layer and head. Values stay those of the text.
    """

    patterns: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)
    outputs: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        fixed = {head: rows for (at, head), rows in self.patterns.items() if at == layer}
        pattern = pattern.clone() if fixed else pattern
        for head, rows in fixed.items():
            pattern[:, head] = rows[: pattern.shape[-1], : pattern.shape[-1]].to(pattern)
        return pattern

    def heads(self, layer: int, z: Tensor) -> Tensor:
        fixed = {head: out for (at, head), out in self.outputs.items() if at == layer}
        z = z.clone() if fixed else z
        for head, out in fixed.items():
            z[:, head] = out.to(z)
        return z


class AblatedHeads(FixedHeads):
    """Heads whose output is set to zero (zero ablation)."""

    def __init__(self, cells: Collection[tuple[int, int]]) -> None:
        super().__init__(outputs=dict.fromkeys(cells, torch.zeros((), device="cpu")))


@dataclass(frozen=True, eq=False)
class SetOutputs(Edit):
    """The heads' outputs of one layer, set to ``z [text, head, pos, d]``."""

    layer: int
    z: Tensor

    def heads(self, layer: int, z: Tensor) -> Tensor:
        return self.z.to(z) if layer == self.layer else z


@dataclass(frozen=True, eq=False)
class SetInputs(Edit):
    """The inputs of one head, set to ``q``, ``k`` and ``v [text, pos, d]``.

    A head that shares keys and values gets a copy of its own.
    """

    layer: int
    head: int
    q: Tensor
    k: Tensor
    v: Tensor

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        if call.layer != self.layer:
            return call
        own = {}
        for name in "qkv":
            rows = repeat_kv(getattr(call, name), call.q.shape[1], 1).clone()
            rows[:, self.head] = getattr(self, name).to(rows)
            own[name] = rows
        return replace(call, **own)


@dataclass(frozen=True)
class RemovedEmbeddings(Edit):
    """Remove token embeddings or positions; norms are recomputed.

    Embeddings are set to zero. Rotary positions are removed by rotating every query and key as at
    position 0, and ALiBi's positions by leaving out the bias.
    """

    which: Literal["tokens", "positions"]

    def tokens(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if self.which == "tokens" else x

    def positions(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if self.which == "positions" else x

    def rotation(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        if self.which == "tokens":
            return cos, sin
        return cos[:, :1].expand_as(cos), sin[:, :1].expand_as(sin)

    def slopes(self, layer: int, slopes: Slopes) -> Slopes | None:
        return slopes if self.which == "tokens" else None


@dataclass(frozen=True)
class ChangedBand(Edit):
    """Freeze or remove the rotary pairs in a band of wavelengths, in some heads.

    The band contains the wavelengths above ``shortest`` and up to ``longest``, in tokens. Frozen
    pairs are not rotated, as at position 0. Removed pairs are set to zero.
    """

    cells: Collection[tuple[int, int]]
    shortest: float
    longest: float
    treatment: Literal["frozen", "removed"]
    wants_rotations = True

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        heads = sorted(head for at, head in self.cells if at == call.layer)
        if rotation is None or not heads:
            return call
        speed, factor = rotation.speeds()
        with np.errstate(divide="ignore"):
            wavelength = 2 * np.pi / np.abs(speed)
        inside = (wavelength > self.shortest) & (wavelength <= self.longest)
        if not inside.any():
            return call
        band = torch.from_numpy(inside).to(call.q.device)
        kept = torch.from_numpy(factor[inside] * (self.treatment == "frozen")).to(call.q)
        q, k = call.q.clone(), repeat_kv(call.k, call.q.shape[1], 1).clone()
        for x in (q, k):
            part = x[:, heads]
            one, two = rotation.turned_back(part)
            part[..., rotation.first[band]] = one[..., band].to(part) * kept
            part[..., rotation.second[band]] = two[..., band].to(part) * kept
            x[:, heads] = part
        return replace(call, q=q, k=k)


@dataclass(frozen=True)
class UniformHeads(Edit):
    """Set the scores of some heads to zero, so that they attend equally to all visible keys."""

    cells: Collection[tuple[int, int]]

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        heads = [head for at, head in self.cells if at == layer]
        if not heads:
            return scores
        scores = scores.clone()
        scores[:, heads] = torch.where(scores[:, heads].isinf(), -torch.inf, 0.0)
        return scores


@dataclass(frozen=True, eq=False)
class ScaledHeads(Edit):
    """Multiply the heads' outputs of one layer by a factor per head and position.

    ``factor [head, pos]`` must be as long as the sequences.
    """

    layer: int
    factor: Tensor

    def heads(self, layer: int, z: Tensor) -> Tensor:
        return z * self.factor[..., None].to(z) if layer == self.layer else z
