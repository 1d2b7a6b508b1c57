"""How the attention of a Hugging Face module is watched and replaced.

transformers hands every attention's queries, keys, values and scale to a registered function; ours
is :func:`poskernel_core.attention.attend`. GPT-Neo computes its own attention and is patched.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from poskernel_core.attention import AttentionCall, PatternBlock, Tap, attend

__all__ = ["TAPPED", "LastLayerSeen", "Switch", "Watcher", "tap_block"]

TAPPED = "poskernel"
ATTENTION = {
    "gpt2": "attn",
    "attn-only": "attn",
    "gpt_neo": "attn.attention",
    "gpt_neox": "attention",
}


@runtime_checkable
class Watcher(Tap, Protocol):
    """A tap that also sees the residual stream before every layer."""

    def residual(self, layer: int, x: Tensor) -> None:
        """See ``x``, the residual stream ``[text, pos, model]`` before ``layer``."""


class LastLayerSeen(Exception):
    """Ends a forward pass once every layer's attention has been seen."""


@dataclass
class Switch:
    """The watcher of the pass that is running, shared by all attention modules of a model."""

    watcher: Watcher | None = None
    last_layer: int = 0


def tap_block(block: nn.Module, layer: int, architecture: str, switch: Switch) -> None:
    """Show one block's input and attention to the watcher of the running pass."""

    def see_residual(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if switch.watcher is not None:
            switch.watcher.residual(layer, args[0] if args else kwargs["hidden_states"])

    block.register_forward_pre_hook(see_residual, with_kwargs=True)
    attention = block.get_submodule(ATTENTION.get(architecture, "self_attn"))
    vars(attention)["poskernel"] = (switch, layer)
    if architecture == "gpt_neo":
        vars(attention)["_attn"] = types.MethodType(_gpt_neo_attention, attention)


def _tapped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_ignored: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers; masks are ours (no padding here)."""
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
    switch, layer = vars(module)["poskernel"]
    call = AttentionCall(layer, q, k, v, float(scale), window)
    out = attend(call, switch.watcher or _NOBODY)
    if switch.watcher is not None and layer == switch.last_layer:
        raise LastLayerSeen
    return out


class _Nobody:
    def attention(self, call: AttentionCall) -> bool:
        return False

    def pattern(self, block: PatternBlock) -> None: ...


_NOBODY = _Nobody()

AttentionInterface.register(TAPPED, _tapped_attention)
AttentionMaskInterface.register(TAPPED, lambda *args, **kwargs: None)
