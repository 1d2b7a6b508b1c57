"""The parts of layer 0: linearized norms, value and output matrices of heads, and neurons."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.forward.hooks import PassEnded
from poskernel_core.forward.loaded import LoadedModel, affine, embedding_matrix
from poskernel_core.forward.precision import EXACT, require_finite

GPT2 = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
LIKE_LLAMA = ("llama", "mistral", "qwen2", "qwen3")
LLAMA = (
    "input_layernorm", "self_attn.v_proj", "self_attn.o_proj",
    "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj",
)  # fmt: skip
PLACES = {
    "gpt2": GPT2,
    "attn-only": GPT2[:3],
    "gpt_neo": (
        "ln_1", "attn.attention.v_proj", "attn.attention.out_proj",
        "ln_2", "mlp.c_fc", "mlp.c_proj",
    ),
    "opt": (
        "self_attn_layer_norm", "self_attn.v_proj", "self_attn.out_proj",
        "final_layer_norm", "fc1", "fc2",
    ),
    "gpt_neox": (
        "input_layernorm", "attention.query_key_value", "attention.dense",
        "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    ),
}  # fmt: skip
"""Modules of a block: first norm, values, output projection, second norm, MLP input and output."""


@dataclass(frozen=True)
class LinearNorm:
    """A norm that is linear when its scale is held fixed.

    Attributes:
        gain, bias: ``[model]``.
        centred: whether the mean over dimensions is subtracted first (LayerNorm; RMSNorm does not).
        eps: constant added to the variance.
    """

    gain: Tensor
    bias: Tensor
    centred: bool
    eps: float

    def scale(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch"]:
        """Return the true norm's scale of each row: ``1 / sqrt(variance + eps)``."""
        return (self._centre(x).square().mean(dim=-1) + self.eps).rsqrt()

    def linear(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch model"]:
        """Return the norm with scale 1 and without bias."""
        return self._centre(x) * self.gain

    def exact(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch model"]:
        """Return the true norm."""
        return self.linear(x) * self.scale(x)[..., None] + self.bias

    def _centre(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True) if self.centred else x


@dataclass(frozen=True)
class FirstLayer:
    """Layer 0 of a model as matrices, in float32 on the CPU.

    Attributes:
        embedding: token embeddings ``[vocab, model]``.
        positions: positional embeddings ``[pos, model]``; zeros for rotary models.
        norm1, norm2: the norms before attention and before the MLP.
        w_v: ``[head, model, d]``, ``b_v [head, d]``; heads that share values repeat them.
        w_o: ``[head, d, model]``, ``b_o [model]``.
        w_in: input weights of the neurons ``[model, neuron]``, ``b_in [neuron]``.
        w_out: output weights ``[neuron, model]``.
    """

    embedding: Tensor
    positions: Tensor
    norm1: LinearNorm
    norm2: LinearNorm
    w_v: Tensor
    b_v: Tensor
    w_o: Tensor
    b_o: Tensor
    w_in: Tensor
    b_in: Tensor
    w_out: Tensor


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


def take_apart(model: LoadedModel) -> FirstLayer:
    """Return the parts of layer 0."""
    geometry = model.geometry
    norm1, values, out, norm2, w_in, w_out = _modules(model)
    w_v, b_v = _values(values, model)
    w_o, b_o = _matrix(out)
    w_o = w_o.reshape(geometry.n_heads, geometry.d_head, geometry.d_model)
    embedding = embedding_matrix(model.module.get_input_embeddings()).cpu()
    positions = torch.zeros(geometry.n_ctx, geometry.d_model, device="cpu")
    if geometry.scheme == "learned":
        positions = model.position_matrix().float().cpu()
    norms, matrices = (_norm(norm1), _norm(norm2)), (*_matrix(w_in), _matrix(w_out)[0])
    return FirstLayer(embedding, positions, *norms, w_v, b_v, w_o, b_o, *matrices)


def count_neurons(model: LoadedModel) -> int:
    """Return the number of neurons in layer 0."""
    return _matrix(_modules(model)[4])[0].shape[1]


@torch.inference_mode()
def see(model: LoadedModel, tokens: Tensor) -> Seen:
    """Run tokens ``[text, pos]`` through layer 0 up to its neurons; return the values inside.

    This registers separate hooks, because observers do not see values between attention and MLP.
    """
    norm1, _, out, norm2, w_in, _ = _modules(model)
    kept: dict[str, Tensor] = {}

    def before(name: str) -> Any:
        return lambda _module, args: kept.update({name: args[0].float().cpu()})

    def end(_module: nn.Module, _args: Any, found: Tensor) -> None:
        kept["activation"] = found.float().cpu()
        raise PassEnded

    with (
        EXACT,  # no other pass runs while the hooks are registered
        norm1.register_forward_pre_hook(before("stream")),
        out.register_forward_pre_hook(before("heads")),
        norm2.register_forward_pre_hook(before("between")),
        w_in.register_forward_hook(end),
        suppress(PassEnded),
    ):
        model.body(tokens.to(model.device), use_cache=False)
    require_finite(kept["activation"], "The first layer")
    geometry = model.geometry  # OPT flattens texts and positions for its MLP
    shaped = {name: part.reshape(*tokens.shape, -1) for name, part in kept.items()}
    shaped["heads"] = shaped["heads"].reshape(*tokens.shape, geometry.n_heads, geometry.d_head)
    return Seen(**shaped)


def _modules(model: LoadedModel) -> list[nn.Module]:
    geometry, config = model.geometry, model.module.config
    known = PLACES | dict.fromkeys(LIKE_LLAMA, LLAMA)
    if geometry.architecture not in known:
        raise BadRequest(
            f"Layer 0 of {geometry.architecture!r} models is not taken apart into heads and "
            f"neurons; choose a model of {', '.join(known)}."
        )
    places = known[geometry.architecture]
    if len(places) < len(LLAMA):
        raise BadRequest(
            f"{model.located.spec.name!r} has attention only, no neurons: choose a model with MLPs."
        )
    if getattr(config, "use_parallel_residual", False):
        raise BadRequest(
            f"The MLP of {model.located.spec.name!r} reads the stream before attention "
            "(parallel residual), so that no bag of tokens reaches layer 0's neurons."
        )
    if not getattr(config, "do_layer_norm_before", True):
        raise BadRequest(
            f"{model.located.spec.name!r} has its norms after attention and MLP, where this "
            "decomposition does not hold: choose a model with norms before them."
        )
    return [model.block(0).get_submodule(place) for place in places]


def _norm(module: Any) -> LinearNorm:
    gain = module.weight.detach().float().cpu()
    if isinstance(module, nn.LayerNorm):
        return LinearNorm(gain, module.bias.detach().float().cpu(), True, module.eps)
    return LinearNorm(gain, torch.zeros_like(gain), False, module.variance_epsilon)


def _matrix(module: Any) -> list[Tensor]:
    return [each.cpu() for each in affine(module)]


def _values(module: nn.Module, model: LoadedModel) -> tuple[Tensor, Tensor]:
    geometry = model.geometry
    weight, bias = _matrix(module)
    kv, d = geometry.n_kv_heads, geometry.d_head
    if geometry.architecture == "gpt_neox":  # q, k and v of each head are adjacent
        weight, bias = weight.reshape(-1, kv, 3, d)[:, :, 2], bias.reshape(kv, 3, d)[:, 2]
    else:  # GPT-2's matrix has the columns of q, then k, then v; others have v only
        weight = weight[:, -kv * d :].reshape(-1, kv, d)
        bias = bias[-kv * d :].reshape(kv, d)
    heads = geometry.n_heads
    return repeat_kv(weight.permute(1, 0, 2), heads), repeat_kv(bias, heads)
