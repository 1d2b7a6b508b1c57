"""Layer 0 as matrices, with its neurons, and the values inside it on some texts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.blocks import Block, Norm, equal, known_blocks, refused
from poskernel_core.forward.components import read_first_block
from poskernel_core.forward.hooks import PassEnded
from poskernel_core.forward.loaded import LoadedModel, affine, embedding_matrix
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.precision import EXACT, require_finite
from poskernel_core.forward.proof import made_up


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """Layer 0 of a model as matrices, in float32 on the CPU.

    Attributes:
        embedding: token embeddings ``[vocab, model]``.
        positions: positional embeddings ``[pos, model]``; zeros for models without them.
        norm1, norm2: the norms before attention and before the MLP.
        w_v: the first norm's centring and gain and ``W_V`` in one, ``[head, model, d]``; heads
            that share values repeat them.
        b_v: values of the first norm's bias, ``[head, d]``.
        w_o: ``[head, d, model]``, ``b_o [model]``.
        w_in: input weights of the neurons ``[model, neuron]``, ``b_in [neuron]``.
        w_out: output weights ``[neuron, model]``.
    """

    embedding: Tensor
    positions: Tensor
    norm1: Norm
    norm2: Norm
    w_v: Tensor
    b_v: Tensor
    w_o: Tensor
    b_o: Tensor
    w_in: Tensor
    b_in: Tensor
    w_out: Tensor

    def values(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "head *batch d"]:
        """Return every head's values of vectors of the stream."""
        read = torch.einsum("...m,hmd->h...d", self.norm1.scale(x)[..., None] * x, self.w_v)
        return read + self.b_v.reshape(len(read), *(1,) * (x.ndim - 1), -1)


@dataclass(frozen=True)
class Seen:
    """Values inside layer 0 on some texts.

    Attributes:
        stream: the stream before the layer, ``[text, pos, model]``.
        heads: every head's output before the projection, ``[text, pos, head, d]``.
        between: the stream before the MLP, ``[text, pos, model]``.
        activation: the neurons' pre-activations, ``[text, pos, neuron]``.
    """

    stream: Tensor
    heads: Tensor
    between: Tensor
    activation: Tensor


def read_first_layer(model: LoadedModel) -> FirstLayer:
    """Return layer 0 as matrices; they are cached with the model.

    Raises:
        UnsupportedModel: no neurons read the stream behind its attention.
    """
    layer: FirstLayer = model.remember("first layer", None, lambda: _first_layer(model))
    return layer


@torch.inference_mode()
def _first_layer(model: LoadedModel) -> FirstLayer:
    block, (norm, w_in, w_out) = _neurons(model)
    embedding = embedding_matrix(model.module.get_input_embeddings())
    positions = embedding.new_zeros(model.geometry.n_ctx, embedding.shape[1])
    if model.geometry.scheme == "learned":
        positions = model.position_matrix().float()
    tokens = made_up(model)
    stream, circuit, b_o = read_first_block(model, tokens)
    embedded = embedding[tokens[0]] + positions[: tokens.shape[1]]
    if not equal(embedded, stream[0].to(embedded)):
        raise refused(model, 0, "the stream is not the sum of the embeddings")
    with EXACT, in_float32(model.module):
        norms = [_scaled_norm(model, module, embedding[:1]) for module in (block.norm, norm)]
        matrices = (*affine(w_in), affine(w_out)[0])
    value, w_o = circuit.value, circuit.out
    values = (repeat_kv(tensor, len(w_o)) for tensor in (value.matrix, value.inner))
    parts = (embedding, positions, *values, w_o, b_o.flatten(), *matrices)
    names = ("embedding", "positions", "w_v", "b_v", "w_o", "b_o", "w_in", "b_in", "w_out")
    tensors = {name: part.cpu() for name, part in zip(names, parts, strict=True)}
    return FirstLayer(norm1=norms[0], norm2=norms[1], **tensors)


def _scaled_norm(model: LoadedModel, module: Any, x: Float[Tensor, "one model"]) -> Norm:
    norm = Norm.of(module, torch.zeros_like(x[0]))
    if not equal(norm.linear(x) * norm.scale(x)[..., None] + norm.bias, module.forward(x).to(x)):
        raise refused(model, 0, "a norm's scale is not that of its input's variance")
    return replace(norm, gain=norm.gain.cpu(), bias=norm.bias.cpu())


@torch.inference_mode()
def see_first_layer(model: LoadedModel, tokens: Tensor) -> Seen:
    """Run tokens ``[text, pos]`` through layer 0 up to its neurons; return the values inside.

    This registers separate hooks, because observers do not see values between attention and MLP.
    """
    block, (norm, w_in, _) = _neurons(model)
    assert block.norm is not None
    assert block.out is not None
    kept: dict[str, Tensor] = {}

    def before(name: str) -> Any:
        return lambda _module, args: kept.update({name: args[0].float().cpu()})

    def end(_module: nn.Module, _args: Any, out: Tensor) -> None:
        kept["activation"] = out.float().cpu()
        raise PassEnded

    with (
        EXACT,  # no other pass runs while the hooks are registered
        block.norm.register_forward_pre_hook(before("stream")),
        block.out.register_forward_pre_hook(before("heads")),
        norm.register_forward_pre_hook(before("between")),
        w_in.register_forward_hook(end),
        suppress(PassEnded),
    ):
        model.body(tokens.to(model.device), use_cache=False)
    require_finite(kept["activation"], "The first layer")
    shaped = {name: part.reshape(*tokens.shape, -1) for name, part in kept.items()}  # OPT flattens
    shaped["heads"] = shaped["heads"].unflatten(-1, (model.geometry.n_heads, -1))
    return Seen(**shaped)


def _neurons(model: LoadedModel) -> tuple[Block, tuple[nn.Module, nn.Module, nn.Module]]:
    block = known_blocks(model)[0]
    if block.norm is None or block.behind is not None or block.neurons is None:
        raise UnsupportedModel(
            f"Layer 0 of {model.located.spec.name!r} has no neurons that read the normed stream "
            "behind its attention (it may have attention alone, or both side by side): choose "
            "another model."
        )
    return block, block.neurons
