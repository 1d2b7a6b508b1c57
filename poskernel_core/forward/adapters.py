"""Adapters for architectures whose attention cannot be replaced through transformers' registry.

For most architectures, transformers passes queries and keys to a registered attention function.
A few architectures compute attention in their own module. An adapter replaces one method of that
module. The new method repeats the module's steps before and after the attention, and calls our
attention.
"""

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.gptj.modeling_gptj import GPTJAttention

from poskernel_core.common.attention import Slopes
from poskernel_core.common.errors import UnsupportedModel

REPLACED = ("_attn", "_get_embed_positions", "forward")
Attend = Callable[..., Tensor]
"""``attend(module, q, k, v, scale, window=None, slopes=None)`` returns the heads' outputs."""


def own_attention(architecture: str) -> str:
    """Return the method that an adapter replaces; empty if transformers' registry does it.

    From transformers 5.24 on, it does so for GPT-J.
    """
    method, _ = ADAPTED.get(architecture, ("", None))
    return method if architecture != "gptj" or hasattr(GPTJAttention, method) else ""


def adapt(attention: nn.Module, architecture: str, attend: Attend) -> None:
    """Replace the method that computes the pattern in an attention module."""
    method, function = ADAPTED[architecture]
    vars(attention)[method] = _method(partial(function, attend), attention)
    if architecture == "gptj":
        plain: Callable[..., Tensor] = type(attention)._get_embed_positions  # type: ignore[attr-defined]

        def turned(self: Any, position_ids: Tensor) -> Any:
            sin_cos = plain(self, position_ids)
            sin, cos = sin_cos.chunk(2, dim=-1)
            hooks, _ = vars(self)["poskernel"]
            cos, sin = hooks.rotated(cos, sin)
            return torch.cat([sin, cos], dim=-1)

        vars(attention)["_get_embed_positions"] = _method(turned, attention)


def _method(function: Callable[..., Any], attention: nn.Module) -> Callable[..., Any]:
    """Bind a function to a module by a weak reference, so that the module can be freed."""
    held = weakref.ref(attention)

    def method(*args: Any, **kwargs: Any) -> Any:
        return function(held(), *args, **kwargs)

    return method


def adapted(attention: nn.Module) -> dict[str, Any]:
    """Return the replaced methods of an attention module, by name."""
    return {name: vars(attention)[name] for name in REPLACED if name in vars(attention)}


def release(attention: nn.Module) -> None:
    """Restore the original methods of an attention module."""
    for method in REPLACED:
        vars(attention).pop(method, None)


def _gpt_neo(
    attend: Attend, self: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None
) -> tuple[Tensor, None]:
    """GPT-Neo: unscaled scores, and a window in local layers."""
    window = self.config.window_size if self.attention_type == "local" else None
    return attend(self, query, key, value, 1.0, window), None


def _gptj(
    attend: Attend, self: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None
) -> tuple[Tensor, None]:
    """GPT-J: queries and keys are already rotated; scores are scaled by 1 / sqrt(head width)."""
    return attend(self, query, key, value, 1 / float(self.scale_attn)), None


def _bloom(
    attend: Attend,
    self: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    *_: Any,
    **__: Any,
) -> tuple[Tensor, None]:
    """BLOOM: ALiBi; the module adds the residual after the projection."""
    query, key, value = self._reshape(self.query_key_value(hidden_states))
    text, length = hidden_states.shape[:2]
    bias = alibi.reshape(text, self.num_heads, -1)[0]
    slopes = _slopes(self, bias)
    z = attend(self, query, key, value, self.inv_norm_factor, slopes=slopes)
    out = self.dense(z.transpose(1, 2).reshape(text, length, -1))
    return residual + out, None


def _mpt(
    attend: Attend,
    self: Any,
    hidden_states: Tensor,
    position_bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> tuple[Tensor, None]:
    """MPT: ALiBi; the projections may be clipped."""
    text, length = hidden_states.shape[:2]
    mixed = self.Wqkv(hidden_states)
    if self.clip_qkv:
        mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    query, key, value = (
        part.reshape(text, length, self.n_heads, self.head_dim).transpose(1, 2)
        for part in mixed.chunk(3, dim=2)
    )
    slopes = None
    if position_bias is not None:
        bias = position_bias[:, 0, max(0, position_bias.shape[2] - length) :]
        slopes = _slopes(self, bias - bias[:, :1])
    z = attend(self, query, key, value, self.softmax_scale, slopes=slopes)
    return self.out_proj(z.transpose(1, 2).reshape(text, length, -1)), None


def _falcon(
    attend: Attend,
    self: Any,
    hidden_states: Tensor,
    alibi: Tensor | None,
    *_: Any,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **__: Any,
) -> tuple[Tensor, None]:
    """Falcon: rotary, or ALiBi rounded to bfloat16 and added before scaling; shared key heads."""
    text, length = hidden_states.shape[:2]
    parts = self._split_heads(self.query_key_value(hidden_states))
    query, key, value = (part.transpose(1, 2) for part in parts)
    if self.new_decoder_architecture:  # _split_heads has repeated the shared key heads
        step = self.num_heads // self.num_kv_heads
        key, value = key[:, ::step], value[:, ::step]
    slopes = None
    if alibi is None:
        assert position_embeddings is not None
        query, key = _rotated(query, key, *position_embeddings)
    else:
        bias = alibi.reshape(text, self.num_heads, -1)[0]
        slopes = _slopes(self, bias, self.inv_norm_factor, rounded=True)
    z = attend(self, query, key, value, 1 / math.sqrt(self.head_dim), slopes=slopes)
    return self.dense(z.transpose(1, 2).reshape(text, length, -1)), None


def _rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Rotate queries and keys in halves of the head width, as Llama and Falcon do."""

    def turned(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos[:, None] + torch.cat([-second, first], dim=-1) * sin[:, None]

    return turned(query), turned(key)


def _slopes(module: Any, bias: Tensor, factor: float = 1.0, rounded: bool = False) -> Slopes:
    """Return the slopes of an ALiBi bias ``[head, key]`` that begins at 0."""
    length = bias.shape[1]
    if bias.device.type == "meta":
        return Slopes((0.0,) * len(bias), factor, rounded)
    first = bias[:, 1] if length > 1 else torch.zeros_like(bias[:, 0])
    slopes = Slopes(tuple(first.tolist()), factor, rounded)
    expected = torch.from_numpy(slopes.bias(length) / factor).to(bias)
    exact = bias.dtype == torch.float32
    if not torch.allclose(bias, expected, rtol=1e-6 if exact else 1e-2, atol=1e-6):
        raise UnsupportedModel(
            f"{type(module).__name__} adds a bias to its scores that is not a slope times the "
            "distance, which PosKernel does not know: choose another model."
        )
    return slopes


ADAPTED: dict[str, tuple[str, Callable[..., tuple[Tensor, None]]]] = {
    "gpt_neo": ("_attn", _gpt_neo),
    "gptj": ("_attn", _gptj),
    "bloom": ("forward", _bloom),
    "mpt": ("forward", _mpt),
    "falcon": ("forward", _falcon),
}
"""By architecture: the name of the replaced method, and what replaces it, after ``attend``."""
