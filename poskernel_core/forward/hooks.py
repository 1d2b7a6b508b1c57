"""How a Hugging Face module shows a forward pass to an observer, and lets an edit change it.

transformers hands every attention's queries, keys, values and scale to a registered function; ours
is :func:`poskernel_core.forward.attention.attend`. GPT-Neo computes its own attention and is
patched.
A pass without an edit takes that road; one that an
:class:`~poskernel_core.forward.edits.Edit` changes forms the whole pattern, so that it can be
changed.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.attention import AttentionCall, PatternBlock, attend
from poskernel_core.forward.edits import Edit, edited_attention
from poskernel_core.forward.finite import require_finite
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.rotation import Rotation, read_rotation

__all__ = ["IMPLEMENTATION", "ForwardPass", "Hooks", "PassEnded"]

IMPLEMENTATION = "poskernel"
"""The name under which transformers knows our attention."""

ATTENTION = {
    "gpt2": "attn",
    "attn-only": "attn",
    "gpt_neo": "attn.attention",
    "gpt_neox": "attention",
}

WITHOUT_EFFECT = {
    "position_ids",  # positions are in the queries and keys already, added or rotated in
    "use_cache",  # a pass reads whole texts and keeps no keys for a next one
    "dropout",  # 0 in evaluation mode, in which every module is
}
"""Arguments that transformers hands to an attention and that do not change what it computes.

Beside scaling and sliding window these are all that it hands to any architecture that is read.
"""


class PassEnded(Exception):
    """Ends a forward pass once all that is asked for has been seen."""


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """One pass of a model: the batch, who looks at it, and what changes it.

    Attributes:
        until: the layer after whose attention nothing is run; None for a pass to the end.
    """

    batch: Batch
    observer: Observer
    edit: Edit | None = None
    until: int | None = None


UNOBSERVED = ForwardPass(Batch(torch.empty(0, 0, dtype=torch.long), range(0)), Observer())


class Hooks:
    """The hooks of one model's modules, which all know the pass that is running."""

    def __init__(self) -> None:
        self._pass = UNOBSERVED
        self._turn: Rotation | None = None

    @contextmanager
    def during(self, forward_pass: ForwardPass) -> Iterator[None]:
        """Serve a pass, for as long as the block lasts."""
        self._pass = forward_pass
        try:
            yield
        finally:
            self._pass = UNOBSERVED

    def add_to_embeddings(self, tokens: nn.Module, positions: nn.Module | None) -> None:
        """Show the positional embeddings, and let an edit change both embeddings."""
        tokens.register_forward_hook(self._tokens)
        if positions is not None:
            positions.register_forward_hook(self._positions)

    def add_to_rotation(self, rotary: nn.Module) -> None:
        """Let an edit change the cosines and sines by which queries and keys are rotated."""
        rotary.register_forward_hook(self._rotation)

    def add_to_block(self, block: nn.Module, layer: int, architecture: str) -> None:
        """Show one block's input and attention, and let an edit change them."""
        attention = block.get_submodule(ATTENTION.get(architecture, "self_attn"))
        block.register_forward_pre_hook(partial(self._residual, layer), with_kwargs=True)
        attention.register_forward_pre_hook(partial(self._attention_input, layer), with_kwargs=True)
        attention.register_forward_hook(partial(self._output, layer))
        vars(attention)["poskernel"] = (self, layer)
        if architecture == "gpt_neo":
            vars(attention)["_attn"] = types.MethodType(_gpt_neo_attention, attention)

    def _tokens(self, _module: nn.Module, _args: Any, out: Tensor) -> Tensor:
        edit = self._pass.edit
        return out if edit is None else edit.tokens(out)

    def _positions(self, _module: nn.Module, _args: Any, out: Tensor) -> Tensor:
        edit = self._pass.edit
        out = out if edit is None else edit.positions(out)
        self._pass.observer.positions(out, self._pass.batch)
        return out

    def _rotation(
        self, _module: nn.Module, _args: Any, out: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        edit = self._pass.edit
        return out if edit is None else edit.rotation(*out)

    def _residual(
        self, layer: int, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        edit, x = self._pass.edit, args[0] if args else kwargs["hidden_states"]
        x = x if edit is None else edit.residual(layer, x)
        self._pass.observer.residual(layer, x, self._pass.batch)
        if edit is None:
            return None
        return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

    def _attention_input(
        self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        x = args[0] if args else kwargs["hidden_states"]
        observer, edit = self._pass.observer, self._pass.edit
        observer.attention_input(layer, x, self._pass.batch)
        if observer.wants_rotations or (edit is not None and edit.wants_rotations):
            self._turn = read_rotation(module, layer, x, kwargs)
            if self._turn is not None:
                observer.rotation(layer, self._turn, self._pass.batch)

    def _output(self, layer: int, _module: nn.Module, _args: Any, out: tuple[Any, ...]) -> Any:
        edit = self._pass.edit
        return None if edit is None else (edit.output(layer, out[0]), *out[1:])

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs of a call, shown and changed as the running pass asks.

        Raises:
            ComputeFailed: NaN or infinity came out.
            PassEnded: the pass ends here.
        """
        running, observer, batch = self._pass, self._pass.observer, self._pass.batch
        if running.edit is not None and running.edit.wants_rotations:
            call = running.edit.call(call, self._turn)
        observer.attention(call, batch)
        if running.edit is None:
            see = partial(observer.pattern, batch=batch) if observer.wants_patterns else None
            out = attend(call, see)
        else:
            out, pattern = edited_attention(call, running.edit)
            if observer.wants_patterns:
                observer.pattern(PatternBlock(call.layer, 0, 0, pattern, 0), batch)
        out = require_finite(out, f"The attention of layer {call.layer}")
        observer.heads(call.layer, out, batch)
        if call.layer == running.until:
            raise PassEnded
        return out


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **further: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers; masks are ours (no padding here).

    Raises:
        UnsupportedModel: an argument by which the attention would be another than ours.
    """
    further |= {"attention_mask": attention_mask}
    for name in sorted(further.keys() - WITHOUT_EFFECT):
        if further[name] is not None:
            raise UnsupportedModel(
                f"{type(module).__name__} hands {name!r} to its attention, which PosKernel does "
                "not know: choose a model without it."
            )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = _attend(module, query, key, value, scale, sliding_window)
    return out.transpose(1, 2).contiguous(), None


def _gpt_neo_attention(
    self: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """GPT-Neo's attention: unscaled scores, and a window in its local layers."""
    window = self.config.window_size if self.attention_type == "local" else None
    return _attend(self, query, key, value, 1.0, window), None


def _attend(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None
) -> Tensor:
    hooks, layer = vars(module)["poskernel"]
    out: Tensor = hooks.attend(AttentionCall(layer, q, k, v, float(scale), window))
    return out


AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, lambda *args, **kwargs: None)
