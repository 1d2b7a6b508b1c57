"""A twin of a model: modules of its own, the same tensors.

The caller's object is never changed: hooks, our attention, evaluation mode and float32 arithmetic
are the twin's. So it is afterwards as it was, whatever happens to the run. The twin shares the
memory of all weights; only buffers of numbers, which are small, are copied, because a pass may
overwrite them.
"""

import copy
import json
import re
from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN, NewGELUActivation

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.specs import brief
from poskernel_core.forward.attn_only import filled
from poskernel_core.forward.configuration import refusing
from poskernel_core.forward.loaded import untouched
from poskernel_core.forward.proof import TOKENS, TOLERANCE, tokens_of
from poskernel_core.models.configuration import read_geometry

BEYOND_LAYERS = ("aLoRA", "XLORA", "POLY")
"""Kinds of adapters that work in the forward of the PEFT model itself."""
HALVED_TOLERANCE = 2e-2
"""As :data:`TOLERANCE`, for logits that are computed in 16 bits."""
SHARDED = re.compile("FullyShardedDataParallel|FSDP|DTensor|DeepSpeed|Zero")


def unwrap(model: Any) -> tuple[Any, list[str]]:
    """Return the transformers module inside an object (of a bridge: the bridge), and what it is in.

    Raises:
        UnsupportedModel: it is, or holds, no such module, or no weights.
    """
    notes: list[str] = []
    while True:
        kind = type(model).__name__
        if not isinstance(model, nn.Module):
            raise UnsupportedModel(
                "Expected a transformers model, a PEFT model or a TransformerBridge to attach, got "
                f"{brief(model)} ({kind})."
            )
        _check_whole(model)
        if kind == "OptimizedModule":
            model, note = model._orig_mod, "compiled: its own module runs, not the compiled one"
        elif kind in ("DistributedDataParallel", "DataParallel"):
            model, note = model.module, f"taken out of {kind}"
        elif hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
            _check_adapters(model)
            note = _adapters(model)
            model = cast(Any, model).get_base_model()
        elif kind == "TransformerBridge":
            _check_bridge(model)
            return model, notes
        elif isinstance(model, PreTrainedModel) and model.get_output_embeddings() is not None:
            if getattr(model, "_hf_peft_config_loaded", False):
                notes.append(_adapters(model))
            return model, notes
        else:
            raise UnsupportedModel(
                f"Expected a model that predicts tokens (as ...ForCausalLM of transformers does), "
                f"or a TransformerBridge, got {kind}: attach the whole model."
            )
        notes.append(note)


def _check_whole(model: nn.Module) -> None:
    kinds = {base.__name__ for base in type(model).__mro__}
    kinds |= {type(parameter).__name__ for parameter in model.parameters()}
    kinds |= {"Zero" for parameter in model.parameters() if hasattr(parameter, "ds_id")}
    if sharded := next(filter(SHARDED.search, sorted(kinds)), None):
        raise UnsupportedModel(
            f"The weights of this {type(model).__name__} are sharded ({sharded}): attach a model "
            "that is whole in this process, such as one loaded from its full state."
        )
    for part in model.modules():
        offloaded = "_hf_hook" in vars(part)
        if offloaded or not any(parameter.is_meta for parameter in part.parameters(recurse=False)):
            continue
        raise UnsupportedModel(
            f"This {type(model).__name__} has weights on the device 'meta', where they have no "
            "numbers: load them before it is attached."
        )


def _check_bridge(bridge: Any) -> None:
    if getattr(bridge, "compatibility_mode", False):
        raise UnsupportedModel(
            "This TransformerBridge is in compatibility mode, which rewrites the weights: boot it "
            "again, and attach it before enable_compatibility_mode()."
        )
    config = bridge.cfg
    own = type(bridge.original_model).__name__ == "NativeModel"
    read = config.attn_only and config.normalization_type == "LN"
    if own and not (read and config.positional_embedding_type == "standard"):
        raise UnsupportedModel(
            "Of the models that TransformerBridge builds by itself, attention-only ones with "
            "LayerNorm and learned positions are read: attach another model."
        )


def _adapters(model: Any) -> str:
    """Return which adapters a PEFT model has, or a transformers model with adapters of its own."""
    merged = any(getattr(part, "merged_adapters", None) for part in model.modules())
    off = any(getattr(part, "disable_adapters", False) is True for part in model.modules())
    active = getattr(model, "active_adapters", None) or model.active_adapter
    active = active() if callable(active) else active
    names = ", ".join([active] if isinstance(active, str) else active)
    state = "disabled: it runs without them" if off else "merged" if merged else "not merged"
    return (
        f"adapters {names} ({state}; the same function the other way is another model to the store)"
    )


def _check_adapters(model: Any) -> None:
    """Check that a PEFT model computes what the layers of its base model compute."""
    for config in model.peft_config.values():
        kind = "aLoRA" if getattr(config, "alora_invocation_tokens", None) else config.peft_type
        kind = getattr(kind, "value", kind)
        if kind in BEYOND_LAYERS or getattr(config, "is_prompt_learning", False):
            raise UnsupportedModel(
                f"Adapters of kind {kind} work outside the layers of the model, where their "
                "attention is not seen: attach a model with adapters on its weights, such as LoRA."
            )
    base, kind = model.get_base_model(), type(model).__name__
    most = getattr(base.config, "max_position_embeddings", None) or TOKENS
    tokens = tokens_of(base.get_input_embeddings().num_embeddings, min(TOKENS, most))
    tokens = tokens.to(base.device)
    with refusing(kind, "{} cannot be run on a few tokens, as it says"), untouched(model):
        theirs, ours = (module(input_ids=tokens).logits.float() for module in (model, base))
    apart = float((theirs - ours).abs().max()) / max(float(theirs.abs().max()), 1e-30)
    if not apart <= (HALVED_TOLERANCE if base.dtype.itemsize == 2 else TOLERANCE):
        raise UnsupportedModel(
            f"The logits of this {kind} differ from those of the model inside it "
            f"by {apart:.2g} of the largest: its adapters work outside the layers; attach a model "
            "with adapters on its weights, such as LoRA."
        )


def config_of(model: Any) -> dict[str, Any]:
    """Return the fields of a ``config.json`` of what :func:`unwrap` returned."""
    if type(model).__name__ != "TransformerBridge":
        fields: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
        return fields
    if type(model.original_model).__name__ != "NativeModel":
        return config_of(model.original_model)
    names = ("n_layers", "n_heads", "d_model", "d_head", "n_ctx", "d_vocab", "attn_only", "eps")
    return {name: getattr(model.cfg, name) for name in (*names, "normalization_type")}


def twin_of(model: Any) -> PreTrainedModel:
    """Return the twin of what :func:`unwrap` returned.

    The attention-only toys that a bridge builds by itself are rewritten as GPT-2, which copies
    their weights.
    """
    if type(model).__name__ == "TransformerBridge":
        inside = model.original_model
        if type(inside).__name__ == "NativeModel":
            return _attention_only(_Twins().of(inside), config_of(model))
        model = inside
    made: PreTrainedModel = _Twins().of(model)
    return made


class _Twins:
    """Makes twins; what two modules share, their twins share."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._configs: dict[int, Any] = {}

    def of(self, part: Any) -> Any:
        unembeds = False
        while type(part).__module__.startswith("transformer_lens.") and (
            inner := getattr(part, "original_component", None)
        ):
            unembeds = type(part).__name__ == "UnembeddingBridge"
            part = inner  # of a bridge's component
        if id(part) in self._made:
            return self._made[id(part)]
        if type(part) is NewGELUActivation and not part._forward_hooks:
            return ACT2FN["gelu_pytorch_tanh"]  # the same formula, fused, as for a directory
        made = self._made[id(part)] = object.__new__(type(part))
        own = vars(made)
        for name, value in vars(part).items():
            own[name] = self._shared(value, part, made)
        own["_parameters"] = {
            n: self._tensor(parameter) for n, parameter in part._parameters.items()
        }
        own["_buffers"] = {n: self._tensor(buffer) for n, buffer in part._buffers.items()}
        own["_modules"] = {
            name: None if module is None else self.of(module)
            for name, module in part._modules.items()
        }
        if unembeds and part.bias is not None and not part.bias.any():
            own["_buffers"].pop("bias", None)  # which the bridge has added
            own["_parameters"]["bias"] = None
        own["_compiled_call_impl"] = None
        if own.pop("_original_forward", None) is not None:
            own.pop("forward", None)  # accelerate's mixed precision
        return made

    def _shared(self, value: Any, part: Any, made: Any) -> Any:
        """Return an attribute for the twin: methods are bound to it, containers are its own."""
        if isinstance(value, PreTrainedConfig):
            return copy.deepcopy(value, self._configs)
        if isinstance(value, MethodType) and value.__self__ is part:
            return MethodType(value.__func__, made)
        if isinstance(value, partial) and value.args[:1] == (part,):
            return partial(value.func, made, *value.args[1:], **value.keywords)
        return copy.copy(value) if isinstance(value, dict | set | list) else value

    def _tensor(self, tensor: Any) -> Any:
        if tensor is None or id(tensor) in self._made:
            return self._made.get(id(tensor))
        made, data = tensor, tensor.detach()
        if data.is_inference():  # gradients pass only other tensors, of the same memory
            place = data.storage_offset(), data.shape, data.stride()
            data = data.new_empty(0).set_(data.untyped_storage(), *place)
        if type(tensor) is nn.Parameter:
            made = nn.Parameter(data, requires_grad=False)
        elif type(tensor) is Tensor and (tensor.is_floating_point() or tensor.is_complex()):
            made = data.clone()
        self._made[id(tensor)] = made
        return made


def _attention_only(native: Any, config: dict[str, Any]) -> PreTrainedModel:
    state: dict[str, Tensor] = {
        "transformer.wte.weight": native.tok_embed.weight,
        "transformer.wpe.weight": native.pos.weight,
        **_norm("transformer.ln_f", native.ln_out),
        "lm_head.weight": native.head.weight,
    }
    if native.head.bias is not None:
        state["lm_head.bias"] = native.head.bias
    for layer, block in enumerate(native.layers):
        to, own = f"transformer.h.{layer}.", block.attn
        state |= _norm(f"{to}ln_1", block.ln1)
        for name, parts in (("c_attn", (own.q, own.k, own.v)), ("c_proj", (own.o,))):
            state[f"{to}attn.{name}.weight"] = torch.cat([p.weight.T for p in parts], dim=1)
            biases = (
                p.weight.new_zeros(len(p.weight)) if p.bias is None else p.bias for p in parts
            )
            state[f"{to}attn.{name}.bias"] = torch.cat([*biases])
    made = filled("model", config, read_geometry("model", config), state)
    return made.to(native.head.weight.device)


def _norm(name: str, norm: Any) -> Mapping[str, Tensor]:
    return {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}
