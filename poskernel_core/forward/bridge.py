"""A loaded model as transformer_lens' bridge: another tree of modules on the same weights."""

import copy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from poskernel_core.common.errors import PosKernelError, UnsupportedModel
from poskernel_core.forward.adapters import own_attention, release
from poskernel_core.forward.loaded import LoadedModel, choose_attention
from poskernel_core.forward.precision import EXACT
from poskernel_core.forward.proof import TOLERANCE, Patterns, beyond_windows
from poskernel_core.models.tokenizers import load_tokenizer

HALVED = 3e-2
"""Largest difference of patterns and logits with weights of 16 bits."""


def to_bridge(model: LoadedModel) -> Any:
    """Return a model as a ``TransformerBridge`` of transformer_lens, on the same tensors.

    All parameters are shared, and nothing in the model changes. The bridge's patterns and logits on
    a few tokens are compared with the model's. The parameters ask for no gradients.

    Raises:
        UnsupportedModel: transformer_lens has no bridge for the architecture, or one that computes
            something else; or the weights lie on several devices.
        NoNetwork: the tokenizer is not on this machine, and the hub cannot be reached.
    """
    name = repr(model.located.spec.name)
    if model.lies_on:
        raise UnsupportedModel(
            f"{name} lies on several devices ({model.where}), which a bridge cannot share: boot it "
            "with TransformerBridge.boot_transformers and a device_map."
        )
    twin = _twin(model)
    try:
        bridge = _built(model, twin)
        apart = _difference(model, bridge)
    except PosKernelError:
        raise
    except Exception as error:  # of transformer_lens, for architectures that it does not know
        raise UnsupportedModel(
            f"transformer_lens has no bridge for {name} ({type(twin).__name__}): "
            f"{' '.join(str(error).split())[:150]}; use transformers' own module, "
            "pk.load(...).module."
        ) from error
    if not apart <= (TOLERANCE if twin.dtype == torch.float32 else HALVED):
        raise UnsupportedModel(
            f"The bridge of transformer_lens computes {name} otherwise than transformers: patterns "
            f"or logits differ by {apart:.2g}; use transformers' own module, pk.load(...).module."
        )
    return bridge


def _twin(model: LoadedModel) -> PreTrainedModel:
    """Return a copy of the modules with the same parameters, without our hooks and attention."""
    shared = {id(item): item for item in (*model.module.parameters(), model.hooks)}
    twin = copy.deepcopy(model.module, shared)
    for part in twin.modules():
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            vars(part)[hooks].clear()
            vars(part)[f"{hooks}_with_kwargs"].clear()
        release(part)
    if not own_attention(model.geometry.architecture):
        choose_attention(twin, "eager")
    return twin


def _built(model: LoadedModel, twin: PreTrainedModel) -> Any:
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    name, loaded = model.located.spec.name, load_tokenizer(model.located)
    tokenizer = loaded and PreTrainedTokenizerFast(
        name_or_path=name,
        tokenizer_object=copy.deepcopy(loaded.backend),
        bos_token=loaded.start_token,
        eos_token=loaded.start_token,
        add_bos_token=True,
    )
    if model.geometry.architecture == "attn-only":
        for block in twin.transformer.h:  # MLPs that add zeros, for the bridge of GPT-2
            block.mlp = GPT2MLP(1, twin.config).to(model.device).eval().requires_grad_(False)
            block.ln_2 = nn.LayerNorm(model.geometry.d_model, device=model.device)
            nn.init.zeros_(block.mlp.c_proj.weight)
    return build_bridge_from_module(
        twin, type(twin).__name__, hf_config=twin.config, tokenizer=tokenizer, model_name=name
    )


def _difference(model: LoadedModel, bridge: Any) -> float:
    tokens = beyond_windows(model)
    seen = Patterns(torch.arange(tokens.shape[1], device="cpu"))
    ours = model.run(tokens, observers=[seen])
    with EXACT, torch.inference_mode():
        logits, cache = bridge.run_with_cache(
            tokens.to(model.device), names_filter=lambda name: name.endswith("hook_pattern")
        )
    apart = [float((logits.float().cpu() - ours.cpu()).abs().max() / ours.abs().max())]
    for layer in model.geometry.with_heads:
        theirs = cache[f"blocks.{layer}.attn.hook_pattern"]
        apart.append(float((theirs.float() - seen.kept[layer].float()).abs().max()))
    return max(apart)
