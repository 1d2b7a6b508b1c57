"""What looks at a forward pass: statistics, readouts and experiments.

An :class:`Observer` is shown what passes by and changes nothing; what changes a pass is an
:class:`~poskernel_core.forward.edits.Edit`. Both are handed to
:meth:`~poskernel_core.forward.loading.LoadedModel.run`; observers see what the edit has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.rotation import Rotation

__all__ = ["Batch", "Observer", "Observers"]


@dataclass(frozen=True, eq=False)
class Batch:
    """The texts of one forward pass.

    Attributes:
        tokens: their token ids, ``[text, pos]``.
        samples: their numbers among all texts that are run, batch after batch.
    """

    tokens: Tensor
    samples: range


class Observer:
    """A no-op base: override the hooks you need.

    A pass shows, in this order, the positional embeddings, and of every layer the residual stream
    before it, the input of its attention, its rotation, the call, the pattern, and the heads'
    outputs. Every moment comes with the batch that is running.

    Attributes:
        wants_patterns: whether patterns are to be shown; without an edit they are formed for those
            who want them alone.
        wants_rotations: whether rotations are to be read and shown.
    """

    wants_patterns: bool = False
    wants_rotations: bool = False

    def positions(self, x: Tensor, batch: Batch) -> None:
        """See ``x``, the learned positional embeddings ``[1 or text, pos, model]``."""

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        """See ``x``, the residual stream ``[text, pos, model]`` before a layer."""

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        """See ``x [text, pos, model]``, the stream after a layer's first norm."""

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        """See by what a layer is about to turn its queries and keys (rotary models only)."""

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """See what enters a layer's attention."""

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """See some rows of a layer's pattern; in an edited pass all of them at once.

        They are there during this call only: the next rows take their place.
        """

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        """See the heads' outputs ``A v [text, head, pos, d]``, before the output projection."""


class Observers(Observer):
    """Several observers, one after the other at each moment."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = tuple(observers)
        self._of_patterns = tuple(each for each in observers if each.wants_patterns)
        self.wants_patterns = bool(self._of_patterns)
        self._of_rotations = tuple(each for each in observers if each.wants_rotations)
        self.wants_rotations = bool(self._of_rotations)

    def positions(self, x: Tensor, batch: Batch) -> None:
        """Show every observer the positional embeddings."""
        for each in self._all:
            each.positions(x, batch)

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        """Show every observer the stream."""
        for each in self._all:
            each.residual(layer, x, batch)

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        """Show every observer the input of an attention."""
        for each in self._all:
            each.attention_input(layer, x, batch)

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        """Show the rotation to those who want it."""
        for each in self._of_rotations:
            each.rotation(layer, rotation, batch)

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Show every observer the call."""
        for each in self._all:
            each.attention(call, batch)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Show the block to those who want patterns."""
        for each in self._of_patterns:
            each.pattern(block, batch)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        """Show every observer the outputs."""
        for each in self._all:
            each.heads(layer, z, batch)
