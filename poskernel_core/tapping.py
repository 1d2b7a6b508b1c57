"""How the attention of a Hugging Face module is watched and replaced.

transformers hands every attention's queries, keys, values and scale to a registered function; ours
is :func:`poskernel_core.attention.attend`. GPT-Neo computes its own attention and is patched.
A pass that is only watched takes that road; a pass that an :class:`~poskernel_core.edits.Edit`
changes forms the whole pattern, so that it can be changed.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from poskernel_core.attention import AttentionCall, PatternBlock, Tap, attend
from poskernel_core.edits import Edit, edited_attention
from poskernel_core.finite import require_finite

__all__ = [
    "TAPPED",
    "LastLayerSeen",
    "Onlooker",
    "Switch",
    "Watcher",
    "tap_block",
    "tap_embeddings",
    "tap_rotation",
]

TAPPED = "poskernel"
ATTENTION = {
    "gpt2": "attn",
    "attn-only": "attn",
    "gpt_neo": "attn.attention",
    "gpt_neox": "attention",
}


@runtime_checkable
class Watcher(Tap, Protocol):
    """A tap that also sees embeddings, residual stream and the input of every attention."""

    def positions(self, x: Tensor) -> None:
        """See ``x``, the learned positional embeddings ``[1 or text, pos, model]``."""

    def residual(self, layer: int, x: Tensor) -> None:
        """See ``x``, the residual stream ``[text, pos, model]`` before ``layer``."""

    def normed(self, layer: int, x: Tensor) -> None:
        """See ``x``, what enters the attention of ``layer``: the stream after its first norm."""


class Onlooker:
    """A watcher that looks at nothing; subclasses override what they want to see."""

    def attention(self, call: AttentionCall) -> bool:
        """See the call; the pattern is not wanted."""
        return False

    def pattern(self, block: PatternBlock) -> None:
        """See a block of the pattern."""

    def positions(self, x: Tensor) -> None:
        """See the positional embeddings."""

    def residual(self, layer: int, x: Tensor) -> None:
        """See the stream before a layer."""

    def normed(self, layer: int, x: Tensor) -> None:
        """See what enters a layer's attention."""


class LastLayerSeen(Exception):
    """Ends a forward pass once every layer's attention has been seen."""


@dataclass
class Switch:
    """Who watches or changes the pass that is running; shared by all modules of a model."""

    watcher: Watcher | None = None
    edit: Edit | None = None
    observe: Callable[[int, Tensor], None] | None = None
    last_layer: int = 0


def tap_embeddings(tokens: nn.Module, positions: nn.Module | None, switch: Switch) -> None:
    """Show the positional embeddings to the watcher, and let an edit change both embeddings."""

    def change_tokens(_module: nn.Module, _args: Any, out: Tensor) -> Tensor:
        return out if switch.edit is None else switch.edit.tokens(out)

    def see_positions(_module: nn.Module, _args: Any, out: Tensor) -> Tensor:
        if switch.watcher is not None:
            switch.watcher.positions(out)
        return out if switch.edit is None else switch.edit.positions(out)

    tokens.register_forward_hook(change_tokens)
    if positions is not None:
        positions.register_forward_hook(see_positions)


def tap_rotation(rotary: nn.Module, switch: Switch) -> None:
    """Let an edit change the cosines and sines by which queries and keys are rotated."""

    def change(_module: nn.Module, _args: Any, out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return out if switch.edit is None else switch.edit.rotation(*out)

    rotary.register_forward_hook(change)


def tap_block(block: nn.Module, layer: int, architecture: str, switch: Switch) -> None:
    """Show one block's input and attention to the watcher, and let an edit change them."""
    attention = block.get_submodule(ATTENTION.get(architecture, "self_attn"))
    block.register_forward_pre_hook(_residual_hook(layer, switch), with_kwargs=True)
    attention.register_forward_pre_hook(_normed_hook(layer, switch), with_kwargs=True)
    attention.register_forward_hook(_output_hook(layer, switch))
    vars(attention)["poskernel"] = (switch, layer)
    if architecture == "gpt_neo":
        vars(attention)["_attn"] = types.MethodType(_gpt_neo_attention, attention)


def _residual_hook(layer: int, switch: Switch) -> Callable[..., Any]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x = args[0] if args else kwargs["hidden_states"]
        if switch.watcher is not None:
            switch.watcher.residual(layer, x)
        if switch.edit is None:
            return None
        x = switch.edit.residual(layer, x)
        return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

    return hook


def _normed_hook(layer: int, switch: Switch) -> Callable[..., None]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if switch.watcher is not None:
            switch.watcher.normed(layer, args[0] if args else kwargs["hidden_states"])

    return hook


def _output_hook(layer: int, switch: Switch) -> Callable[..., Any]:
    def hook(_module: nn.Module, _args: Any, out: tuple[Any, ...]) -> Any:
        if switch.edit is None:
            return None
        return (switch.edit.output(layer, out[0]), *out[1:])

    return hook


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
    if switch.edit is not None:
        out, pattern = edited_attention(call, switch.edit)
        if switch.observe is not None:
            switch.observe(layer, pattern)
        return require_finite(out, _named(layer))
    out = require_finite(attend(call, switch.watcher or _NOBODY), _named(layer))
    if switch.watcher is not None and layer == switch.last_layer:
        raise LastLayerSeen
    return out


def _named(layer: int) -> str:
    return f"The attention of layer {layer}"


_NOBODY = Onlooker()

AttentionInterface.register(TAPPED, _tapped_attention)
AttentionMaskInterface.register(TAPPED, lambda *args, **kwargs: None)
