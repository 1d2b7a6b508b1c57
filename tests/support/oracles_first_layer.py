"""Layer 0 of a tiny model: its weights in float64, and its hidden values by plain transformers.

Nothing here goes through `poskernel_core`: names of modules and places of heads are
written once more.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tests.support import oracles
from tests.support.builders import hf_eager_model

_GPT2 = ("transformer.h.0", "ln_1", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
_LLAMA = (
    "model.layers.0", "input_layernorm", "self_attn.o_proj",
    "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj",
)  # fmt: skip
_NEOX = (
    "gpt_neox.layers.0", "input_layernorm", "attention.dense",
    "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
)  # fmt: skip
_OPT = (
    "model.decoder.layers.0", "self_attn_layer_norm", "self_attn.out_proj",
    "final_layer_norm", "fc1", "fc2",
)  # fmt: skip
NAMES = {
    "gpt2": _GPT2,
    "gpt_neo": (*_GPT2[:2], "attn.attention.out_proj", *_GPT2[3:]),
    "opt": _OPT,
    "gpt_neox": _NEOX,
}


@dataclass(frozen=True, repr=False)
class Inside:
    """Hidden values of layer 0 on some texts, by plain transformers.

    `stream` and `between` `[text, pos, model]`, `heads` `[text, pos, head * d]`, `activation`
    `[text, pos, neuron]`, `pattern` `[text, head, query, key]`, `w_out` `[neuron, model]`.
    """

    stream: np.ndarray
    heads: np.ndarray
    between: np.ndarray
    activation: np.ndarray
    pattern: np.ndarray
    w_out: np.ndarray


def names_of(path: Path) -> tuple[str, ...]:
    """Names of the block, its norms, and three of its linear maps."""
    kind = json.loads((path / "config.json").read_text())["model_type"]
    block, *others = NAMES.get(kind, _LLAMA)
    return tuple(f"{block}.{other}" for other in others)


def inside(path: Path, windows: np.ndarray) -> Inside:
    """Run plain transformers with hooks of its own."""
    model, seen = hf_eager_model(path), {}
    _, out, norm2, first, last = (model.get_submodule(name) for name in names_of(path))
    out.register_forward_pre_hook(lambda _m, args: seen.setdefault("heads", args[0]))
    norm2.register_forward_pre_hook(lambda _m, args: seen.setdefault("between", args[0]))
    first.register_forward_hook(lambda _m, _i, found: seen.setdefault("activation", found))

    def shaped(x: Tensor) -> np.ndarray:
        return x.reshape(*windows.shape, -1).double().numpy()

    with torch.inference_mode():
        ids = torch.from_numpy(windows)
        run = model(ids, output_hidden_states=True, output_attentions=True, use_cache=False)
        one = torch.eye(seen["activation"].shape[-1])
        w_out = last(one) - last(torch.zeros_like(one))
    return Inside(
        stream=shaped(run.hidden_states[0]),
        **{name: shaped(x) for name, x in seen.items()},
        pattern=run.attentions[0].double().numpy(),
        w_out=w_out.double().numpy(),
    )


@dataclass(frozen=True, repr=False)
class Layer:
    """Weights of layer 0 of GPT-2, GPT-Neo, Llama or Mistral; linear maps act on rows."""

    embedding: np.ndarray
    positions: np.ndarray
    norms: list[tuple[np.ndarray, np.ndarray, float, bool]]
    values: list[tuple[np.ndarray, np.ndarray]]
    outputs: list[np.ndarray]
    b_o: np.ndarray
    w_in: np.ndarray
    b_in: np.ndarray

    def linear(self, norm: int, x: np.ndarray) -> np.ndarray:
        gain, _, _, centred = self.norms[norm]
        return (x - oracles.mean(x.tolist()) if centred else x) * gain

    def scale(self, norm: int, x: np.ndarray) -> float:
        _, _, eps, centred = self.norms[norm]
        middle = oracles.mean(x.tolist()) if centred else 0.0
        return 1 / math.sqrt(oracles.mean([(v - middle) ** 2 for v in x.tolist()]) + eps)


def layer_of(path: Path) -> Layer:
    """Read the weights; heads that share values have copies of them."""
    model, config = hf_eager_model(path), json.loads((path / "config.json").read_text())
    state = {name: x.double().numpy() for name, x in model.state_dict().items()}
    heads = config.get("num_attention_heads") or config.get("num_heads") or config["n_head"]
    names, is_gpt2 = names_of(path), config["model_type"] == "gpt2"
    first, out, second, w_in, _ = names

    def linear(name: str) -> tuple[np.ndarray, np.ndarray]:
        weight = state[f"{name}.weight"] if is_gpt2 else state[f"{name}.weight"].T
        return weight, state.get(f"{name}.bias", np.zeros(weight.shape[1]))

    def norm(name: str) -> tuple[np.ndarray, np.ndarray, float, bool]:
        module = model.get_submodule(name)
        bias = state.get(f"{name}.bias", np.zeros(len(state[f"{name}.weight"])))
        eps = getattr(module, "eps", None) or module.variance_epsilon
        return state[f"{name}.weight"], bias, eps, isinstance(module, torch.nn.LayerNorm)

    (w_o, b_o), (weight, bias) = linear(out), linear(out.rsplit(".", 1)[0] + (
        ".c_attn" if is_gpt2 else ".v_proj"))  # fmt: skip
    if is_gpt2:
        weight, bias = weight[:, 2 * heads * (d := len(w_o) // heads) :], bias[2 * heads * d :]
    d = len(w_o) // heads
    shared = heads * d // weight.shape[1]
    slots = [slice(h // shared * d, (h // shared + 1) * d) for h in range(heads)]
    tokens = model.get_input_embeddings().weight.detach().double().numpy()
    return Layer(
        tokens,
        state.get("transformer.wpe.weight", np.zeros((config.get("max_position_embeddings", 0) or 1,
                                                      tokens.shape[1]))),
        [norm(first), norm(second)],
        [(weight[:, slot], bias[slot]) for slot in slots],
        [w_o[h * d : (h + 1) * d] for h in range(heads)],
        b_o,
        *linear(w_in),
    )  # fmt: skip
