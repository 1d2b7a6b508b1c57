"""Open a transformer_lens bridge on a loaded model, for work with hook names.

Statistics run on the module of :mod:`poskernel_core.forward.loading` and need no bridge. The bridge
shares the model's tensors, so it takes only a few megabytes. It runs eager attention, so that
patterns can be read and edited.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module

from poskernel_core.forward.adapters import release
from poskernel_core.forward.loading import LoadedModel
from poskernel_core.forward.precision import EXACT


def open_bridge(model: LoadedModel) -> Any:
    """Return a ``TransformerBridge`` that shares a loaded model's tensors, in evaluation mode.

    For attention-only models it is transformer_lens' native bridge; for others, it wraps a copy of
    the module.
    """
    if model.geometry.architecture == "attn-only":
        return _native(model)
    with EXACT:
        model.state.restore()
        twin = _without_hooks(model.module)
    twin.set_attn_implementation("eager")
    bridge = build_bridge_from_module(twin, type(twin).__name__, hf_config=twin.config)
    return bridge.eval()


def _without_hooks(module: nn.Module) -> Any:
    """Return a copy of a module that shares its tensors, without our hooks and patches."""
    memo: dict[int, Any] = {id(t): t for t in [*module.parameters(), *module.buffers()]}
    plain = copy.deepcopy(module, memo)
    for part in plain.modules():
        if vars(part).pop("poskernel", None) is not None:
            release(part)
        part._forward_pre_hooks.clear()
        part._forward_pre_hooks_with_kwargs.clear()
        part._forward_hooks.clear()
    return plain


def _native(model: LoadedModel) -> Any:
    geometry = model.geometry
    config = TransformerBridgeConfig(
        d_model=geometry.d_model,
        n_layers=geometry.n_layers,
        d_mlp=4 * geometry.d_model,
        d_head=geometry.d_head,
        n_heads=geometry.n_heads,
        n_ctx=geometry.n_ctx,
        d_vocab=geometry.n_vocab,
        act_fn="gelu",
        attn_only=True,
        normalization_type="LN",
        positional_embedding_type="standard",
        architecture="TransformerLensNative",
    )
    bridge = TransformerBridge.boot_native(config)
    bridge.load_state_dict(_native_state(model.module.state_dict(), geometry.n_layers), strict=True)
    return bridge.to(model.device).eval()


def _native_state(gpt2: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Rename GPT-2's tensors for the native bridge, and transpose its linear maps."""
    unembed = gpt2["lm_head.weight"]
    state = {
        "embed.weight": gpt2["transformer.wte.weight"],
        "pos_embed.weight": gpt2["transformer.wpe.weight"],
        "ln_final.weight": gpt2["transformer.ln_f.weight"],
        "ln_final.bias": gpt2["transformer.ln_f.bias"],
        "unembed.weight": unembed,
        "unembed.bias": torch.zeros(len(unembed), device="cpu"),
    }
    for layer in range(layers):
        source, target = f"transformer.h.{layer}.", f"blocks.{layer}."
        weights = gpt2[f"{source}attn.c_attn.weight"].T.chunk(3)
        biases = gpt2[f"{source}attn.c_attn.bias"].chunk(3)
        for name, weight, bias in zip("qkv", weights, biases, strict=True):
            state[f"{target}attn.{name}.weight"] = weight
            state[f"{target}attn.{name}.bias"] = bias
        state[f"{target}attn.o.weight"] = gpt2[f"{source}attn.c_proj.weight"].T
        state[f"{target}attn.o.bias"] = gpt2[f"{source}attn.c_proj.bias"]
        state[f"{target}ln1.weight"] = gpt2[f"{source}ln_1.weight"]
        state[f"{target}ln1.bias"] = gpt2[f"{source}ln_1.bias"]
    return state
