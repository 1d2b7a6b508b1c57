"""Observers: callbacks that see the values of a forward pass, such as statistics.

An :class:`Observer` does not change anything; to change a pass, use an
:class:`~poskernel_core.forward.edits.Edit`. Pass both to
:meth:`~poskernel_core.forward.loading.LoadedModel.run`. Observers see the values after the edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.rotation import Rotation


@dataclass(frozen=True, eq=False)
class Batch:
    """The texts of one forward pass.

    Attributes:
        tokens: token ids, ``[text, pos]``.
        samples: numbers of the texts in the whole run, over all batches.
    """

    tokens: Tensor
    samples: range


class Observer:
    """A no-op base: override the hooks you need.

    A pass calls the hooks in this order: positional embeddings; then for every layer the residual
    stream before the layer, the attention input, the rotation, the call, the pattern, and the
    heads' outputs. Every hook also gets the current batch.

    Attributes:
        wants_patterns: whether :meth:`pattern` is called. Without an edit, patterns are computed
            only if some observer wants them.
        wants_rotations: whether :meth:`rotation` is called.
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
        """See the rotation that a layer will apply to its queries and keys (rotary models only)."""

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """See the inputs of a layer's attention."""

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """See some rows of a layer's pattern; in an edited pass, all rows at once.

        The tensor is valid only during this call: the buffer is reused for the next rows.
        """

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        """See the heads' outputs ``A v [text, head, pos, d]``, before the output projection."""


def _passed_on(hook: str, wanted: str = "") -> Any:
    """Return a hook that calls the hook of all observers, or only of those that want it."""

    def see(observers: Observers, *seen: Any, **named: Any) -> None:
        for observer in observers.each:
            if not wanted or getattr(observer, wanted):
                getattr(observer, hook)(*seen, **named)

    return see


class Observers(Observer):
    """Several observers, called in order at each hook."""

    positions = _passed_on("positions")
    residual = _passed_on("residual")
    attention_input = _passed_on("attention_input")
    rotation = _passed_on("rotation", "wants_rotations")
    attention = _passed_on("attention")
    pattern = _passed_on("pattern", "wants_patterns")
    heads = _passed_on("heads")

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.each = tuple(observers)
        self.wants_patterns = any(one.wants_patterns for one in observers)
        self.wants_rotations = any(one.wants_rotations for one in observers)
