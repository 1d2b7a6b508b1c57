"""Changes to a forward pass: what an intervention is made of.

An :class:`Edit` is asked at ten places of the forward pass and returns what goes on from there;
what only looks is an :class:`~poskernel_core.forward.observers.Observer`.
The attention of every architecture runs through our own function
(:mod:`poskernel_core.forward.hooks`), so an edit takes effect in all of them alike, local layers
and grouped queries included. It is given the whole pattern, so a clean run that is held against an
edited one is a run with an ``Edit()``: both are computed in the same way, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from torch import Tensor

from poskernel_core.common.attention import Slopes, repeat_kv
from poskernel_core.forward.attention import AttentionCall, masked_scores, softmax_with_sinks
from poskernel_core.forward.rotation import Rotation

__all__ = ["Chain", "Edit", "edited_attention"]


class Edit:
    """Changes nothing; subclasses override the places that they change.

    Axes: ``[text, pos, model]`` for embeddings, stream and layer output,
    ``[text, head, query, key]`` for scores and patterns, ``[text, head, pos, d]`` for heads.
    """

    @property
    def wants_rotations(self) -> bool:
        """Whether :meth:`call` is asked; each layer's rotation is then read."""
        return False

    def tokens(self, x: Tensor) -> Tensor:
        """Return the token embeddings that enter the sum."""
        return x

    def positions(self, x: Tensor) -> Tensor:
        """Return the positional embeddings that enter the sum (learned positions only)."""
        return x

    def rotation(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines ``[text, pos, d]`` of the rotation (rotary models only)."""
        return cos, sin

    def slopes(self, layer: int, slopes: Slopes) -> Slopes | None:
        """Return the slopes of a layer's ALiBi, None for no bias (ALiBi models only)."""
        return slopes

    def residual(self, layer: int, x: Tensor) -> Tensor:
        """Return the residual stream before a layer."""
        return x

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        """Return what enters a layer's attention; ``rotation`` is what its pairs were turned by."""
        return call

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        """Return a layer's masked scores; hidden keys hold minus infinity."""
        return scores

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        """Return a layer's attention probabilities."""
        return pattern

    def heads(self, layer: int, z: Tensor) -> Tensor:
        """Return the heads' outputs ``A v``, before the output projection."""
        return z

    def output(self, layer: int, out: Tensor) -> Tensor:
        """Return the attention output of the whole layer, projection and bias included."""
        return out


@dataclass(frozen=True)
class Chain(Edit):
    """Several edits, one after the other at each place."""

    edits: Sequence[Edit]

    @property
    def wants_rotations(self) -> bool:
        """Whether one of them does."""
        return any(edit.wants_rotations for edit in self.edits)

    def tokens(self, x: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.tokens(out), self.edits, x)

    def positions(self, x: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.positions(out), self.edits, x)

    def rotation(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.rotation(*out), self.edits, (cos, sin))

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.call(out, rotation), self.edits, call)

    def slopes(self, layer: int, slopes: Slopes) -> Slopes | None:
        """Ask every edit in turn, until one leaves none."""
        left: Slopes | None = slopes
        for edit in self.edits:
            left = None if left is None else edit.slopes(layer, left)
        return left

    def residual(self, layer: int, x: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.residual(layer, out), self.edits, x)

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.scores(layer, out), self.edits, scores)

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.pattern(layer, out), self.edits, pattern)

    def heads(self, layer: int, z: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda out, edit: edit.heads(layer, out), self.edits, z)

    def output(self, layer: int, out: Tensor) -> Tensor:
        """Ask every edit in turn."""
        return reduce(lambda so_far, edit: edit.output(layer, so_far), self.edits, out)


def edited_attention(call: AttentionCall, edit: Edit) -> tuple[Tensor, Tensor]:
    """Return the heads' outputs ``[text, head, pos, d]`` and the pattern, both after the edit."""
    values = repeat_kv(call.v, call.q.shape[1], 1)
    if call.slopes is not None:
        call = replace(call, slopes=edit.slopes(call.layer, call.slopes))
    scores = edit.scores(call.layer, masked_scores(call))
    pattern = edit.pattern(call.layer, softmax_with_sinks(scores, call.sinks))
    return edit.heads(call.layer, pattern.to(values.dtype) @ values), pattern
