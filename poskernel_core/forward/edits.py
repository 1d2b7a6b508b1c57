"""Edits: changes to a forward pass, the building blocks of interventions.

An :class:`Edit` has a hook at ten points of the forward pass; each hook returns the value to
continue with. To only look at values, use an
:class:`~poskernel_core.forward.observers.Observer`. The attention of every architecture runs
through our own function (:mod:`poskernel_core.forward.hooks`), so edits work the same in all of
them, including local layers and grouped queries. An edited pass computes the whole pattern at once,
unless the edit keeps the attention itself.
So compare it with a clean pass under a plain ``Edit()``, which is computed in exactly the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from torch import Tensor

from poskernel_core.common.attention import Slopes, repeat_kv
from poskernel_core.forward.attention import AttentionCall, masked_scores, softmax_with_sinks
from poskernel_core.forward.rotation import Rotation


class Edit:
    """A no-op edit; subclasses override hooks.

    Axes: ``[text, pos, model]`` for embeddings, stream and layer output,
    ``[text, head, query, key]`` for scores and patterns, ``[text, head, pos, d]`` for heads.

    Attributes:
        wants_rotations: whether :meth:`call` gets each layer's rotation, which is read for it.
        keeps_attention: whether slopes, scores, patterns and heads stay; then no whole pattern is
            formed.
    """

    wants_rotations: bool = False
    keeps_attention: bool = False

    @property
    def angles_of(self) -> int | None:
        """The length of the texts whose angles :meth:`rotation` gets; None: that of the pass.

        A few models turn by other angles in longer texts.
        """
        return None

    def tokens(self, x: Tensor) -> Tensor:
        """Return the token embeddings to use."""
        return x

    def positions(self, x: Tensor) -> Tensor:
        """Return the positional embeddings to use (learned positions only)."""
        return x

    def rotation(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines ``[text, pos, d]`` of the rotation (rotary models only)."""
        return cos, sin

    def slopes(self, layer: int, slopes: Slopes) -> Slopes | None:
        """Return the ALiBi slopes of a layer, or None for no bias (ALiBi models only)."""
        return slopes

    def residual(self, layer: int, x: Tensor) -> Tensor:
        """Return the residual stream before a layer."""
        return x

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        """Return the inputs of a layer's attention; ``rotation`` was already applied to q and k.

        It is None if the edit does not want rotations, or if nothing is turned.
        """
        return call

    def scores(self, layer: int, scores: Tensor) -> Tensor:
        """Return a layer's masked scores; minus infinity for hidden keys."""
        return scores

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        """Return a layer's attention probabilities."""
        return pattern

    def heads(self, layer: int, z: Tensor) -> Tensor:
        """Return the heads' outputs ``A v``, before the output projection."""
        return z

    def output(self, layer: int, out: Tensor) -> Tensor:
        """Return a layer's attention output, after projection and bias."""
        return out


def _in_order(hook: str) -> Any:
    """Return a chain's hook: it calls all edits' hooks in order, each on the result of the last."""

    def apply(chain: Chain, *given: Any) -> Any:
        *layer, first = given
        return reduce(lambda out, edit: getattr(edit, hook)(*layer, out), chain.edits, first)

    return apply


class Chain(Edit):
    """Several edits, applied in order at each hook."""

    tokens = _in_order("tokens")
    positions = _in_order("positions")
    residual = _in_order("residual")
    scores = _in_order("scores")
    pattern = _in_order("pattern")
    heads = _in_order("heads")
    output = _in_order("output")

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.edits = edits
        self.keeps_attention = bool(edits) and all(edit.keeps_attention for edit in edits)
        self.wants_rotations = any(edit.wants_rotations for edit in edits)

    @property
    def angles_of(self) -> int | None:
        wanted = (edit.angles_of for edit in self.edits)
        return next((length for length in wanted if length is not None), None)

    def rotation(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return reduce(lambda out, edit: edit.rotation(*out), self.edits, (cos, sin))

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        return reduce(lambda out, edit: edit.call(out, rotation), self.edits, call)

    def slopes(self, layer: int, slopes: Slopes) -> Slopes | None:
        left: Slopes | None = slopes
        for edit in self.edits:
            left = None if left is None else edit.slopes(layer, left)
        return left


def edited_attention(call: AttentionCall, edit: Edit) -> tuple[Tensor, Tensor]:
    """Return the edited heads' outputs ``[text, head, pos, d]`` and the edited pattern."""
    values = repeat_kv(call.v, call.q.shape[1], 1)
    if call.slopes is not None:
        call = replace(call, slopes=edit.slopes(call.layer, call.slopes))
    scores = edit.scores(call.layer, masked_scores(call))
    pattern = edit.pattern(call.layer, softmax_with_sinks(scores, call.sinks))
    return edit.heads(call.layer, pattern.to(values.dtype) @ values), pattern
