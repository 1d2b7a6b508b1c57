"""Load attention-only toy models from their two formats.

A model is either a local directory in our format (``config.json`` in TransformerLens terms, weights
as safetensors with GPT-2's names), or a hub repository in TransformerLens' older format. The module
is GPT-2 with its MLPs removed.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.models.catalog import Located, weight_files
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.hub import fetch_file
from poskernel_core.models.weights import check_enough

HUB_WEIGHTS = "model_final.pth"


class NoMlp(nn.Module):
    """An MLP that adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """Return zeros of the shape of ``x``."""
        return torch.zeros_like(x)


def load(located: Located) -> GPT2LMHeadModel:
    """Build the attention-only module of a located model and load its weights.

    Raises:
        KeyError, ValueError: the weights do not fit the configuration.
    """
    if located.directory is None:
        path = fetch_file(located.spec.name, HUB_WEIGHTS, located.spec.fingerprint)
        # These toy models exist only in this format. With weights_only, torch reads tensors and
        # refuses everything that could run code.
        old = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        state = _from_transformer_lens(old, located.geometry)
    else:
        files = weight_files(located.spec.name, Path(located.directory))
        stored = {name: tensor for file in files for name, tensor in load_file(file).items()}
        state = {name: tensor for name, tensor in stored.items() if ".ln_2." not in name}
    return filled(located.spec.name, located.config, located.geometry, state)


def filled(
    name: str, config: dict[str, Any], geometry: Geometry, state: dict[str, Tensor]
) -> GPT2LMHeadModel:
    """Return the attention-only module of a configuration with weights of GPT-2's names."""
    check_enough(name, sum(tensor.numel() for tensor in state.values()), geometry.numbers)
    state.setdefault("lm_head.weight", state["transformer.wte.weight"])
    module = _skeleton(name, config, geometry)
    if "lm_head.bias" in state:
        module.lm_head = nn.Linear(geometry.d_model, geometry.n_vocab)
    own = module.state_dict()
    if lacking := own.keys() - state.keys():
        raise ValueError(f"{min(lacking)!r} is missing")
    if beyond := state.keys() - own.keys():
        raise ValueError(f"{min(beyond)!r} is in no such model")
    for tensor, held in state.items():
        if held.shape != own[tensor].shape:
            raise ValueError(mismatch(tensor, held.shape, own[tensor].shape))
    module.load_state_dict(state)
    return module


def mismatch(tensor: str, held: Iterable[int], expected: Iterable[int]) -> str:
    """Return the error text for a tensor whose shape does not fit the configuration."""
    return f"{tensor!r} has the shape {list(held)}, expected {list(expected)}"


def _skeleton(name: str, settings: dict[str, Any], geometry: Geometry) -> GPT2LMHeadModel:
    if settings.get("normalization_type", settings.get("normalization")) != "LN":
        raise UnsupportedModel(
            f"{name!r} is attention-only with another norm than LN, which is not read."
        )
    config = GPT2Config(
        vocab_size=geometry.n_vocab,
        n_positions=geometry.n_ctx,
        n_embd=geometry.d_model,
        n_layer=geometry.n_layers,
        n_head=geometry.n_heads,
        n_inner=1,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        layer_norm_epsilon=settings.get("eps", 1e-5),
    )
    module = GPT2LMHeadModel(config)
    for block in module.transformer.h:
        block.mlp = NoMlp()
        block.ln_2 = nn.Identity()
    return module


def _from_transformer_lens(old: dict[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    # what is left in the end has no name of GPT-2's, and is refused as weights of another model
    left = {name: old[name] for name in old if not name.endswith((".mask", ".IGNORE"))}
    state = {
        "transformer.wte.weight": left.pop("embed.W_E"),
        "transformer.wpe.weight": left.pop("pos_embed.W_pos"),
        "transformer.ln_f.weight": left.pop("ln_final.w"),
        "transformer.ln_f.bias": left.pop("ln_final.b"),
        "lm_head.weight": left.pop("unembed.W_U").T.contiguous(),
    }
    if "unembed.b_U" in left:
        state["lm_head.bias"] = left.pop("unembed.b_U")
    for layer in range(geometry.n_layers):
        source, target = f"blocks.{layer}.", f"transformer.h.{layer}."
        weights = [left.pop(f"{source}attn.W_{x}") for x in "QKV"]
        biases = [left.pop(f"{source}attn.b_{x}").reshape(-1) for x in "QKV"]
        rows = [weight.permute(1, 0, 2).reshape(geometry.d_model, -1) for weight in weights]
        out = left.pop(f"{source}attn.W_O").reshape(-1, geometry.d_model)
        state |= {
            f"{target}ln_1.weight": left.pop(f"{source}ln1.w"),
            f"{target}ln_1.bias": left.pop(f"{source}ln1.b"),
            f"{target}attn.c_attn.weight": torch.cat(rows, dim=1),
            f"{target}attn.c_attn.bias": torch.cat(biases),
            f"{target}attn.c_proj.weight": out,
            f"{target}attn.c_proj.bias": left.pop(f"{source}attn.b_O"),
        }
    return state | left
