"""The identity of a model in memory: one hash of its tensors, its configuration and its hooks.

Two objects with the same identity compute the same. Buffers that are not saved, such as the angles
of rotary modules, change while a model runs and are left out; adapters, and hooks of the caller,
enter by name.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from poskernel_core.common.specs import digest
from poskernel_core.forward.configuration import build

PIECE = 2**22
"""Numbers of a tensor that are copied to the processor at a time."""

CANNOT_MATTER = re.compile(
    r"^(_name_or_path|_commit_hash|transformers_(version|weights)|architectures|auto_map|use_cache|dtype"
    r"|torch_dtype|return_dict|output_\w+|\w+_token_id|id2label|label2id|num_labels)$"
    r"|(attn|experts)_implementation"
)
"""Fields of a configuration that change no number: paths, versions, kernels, names of tokens."""

LIBRARIES = ("transformers.", "accelerate.", "peft.")
"""Packages whose hooks only move or collect tensors."""


def identity(module: nn.Module, config: Any, dtype: torch.dtype | None = None) -> str:
    """Return the SHA-256 of a model's tensors, configuration, adapters and hooks.

    With ``dtype``, it is that of the same model with its weights in this precision.
    """
    settings = json.loads(config.to_json_string(use_diff=False))
    parts = [[name, *_digest(tensor, dtype)] for name, tensor in _tensors(module)]
    canonical = build("model", settings).to_json_string(use_diff=False)
    return digest([sorted(parts), _that_matter(json.loads(canonical)), sorted(_marks(module))])


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and saved buffers, shared ones once; loads what is offloaded."""
    seen: set[int] = set()
    for path, part in module.named_modules():
        held = {**part._parameters, **part._buffers}
        unsaved = part._non_persistent_buffers_set
        own = [name for name, tensor in held.items() if tensor is not None and name not in unsaved]
        new = [name for name in own if id(held[name]) not in seen]
        seen |= {id(held[name]) for name in new}
        with align_module_device(part):
            for name in new:
                yield f"{path}.{name}", getattr(part, name)


def _digest(tensor: Tensor, dtype: torch.dtype | None) -> tuple[str, list[int], str]:
    kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    total = hashlib.sha256()
    for piece in tensor.detach().reshape(-1).split(PIECE):
        total.update(piece.to(kind).cpu().contiguous().view(torch.uint8).numpy())
    return str(kind), list(tensor.shape), total.hexdigest()


def _that_matter(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not CANNOT_MATTER.search(key)}
        return {key: _that_matter(item) for key, item in kept.items()}
    return [_that_matter(item) for item in value] if isinstance(value, list) else value


def _marks(module: nn.Module) -> Iterator[str]:
    """Yield what else changes the numbers of a model: adapters, hooks, angles in 16 bits.

    A copied layer has a configuration of its own, and computes as in its first place (without
    rotation, say): where there is one, the settings of all parts count.
    """
    yield from own_hooks(module)
    owners: list[Any] = [
        p for p in module.modules() if isinstance(vars(p).get("config"), PreTrainedConfig)
    ]
    of_models = {id(part.config) for part in owners if isinstance(part, PreTrainedModel)}
    copied = any(id(part.config) not in of_models for part in owners)
    for path, part in module.named_modules():
        if copied:
            own = {k: v for k, v in vars(part).items() if isinstance(v, int | float | str)}
            yield f"{path}: {sorted(own.items() - {('training', part.training)})}"
        if type(part).__module__.startswith("peft.") and hasattr(part, "active_adapters"):
            named = ("active_adapters", "merged_adapters", "disable_adapters", "scaling")
            yield f"{path}: {[str(getattr(part, name, None)) for name in named]}"
        for name in sorted(part._non_persistent_buffers_set):
            buffer = part._buffers.get(name)
            if buffer is not None and buffer.dtype in (torch.float16, torch.bfloat16):
                yield f"{path}.{name} in 16 bits"


def own_hooks(module: nn.Module) -> list[str]:
    """Return the names of the hooks, and of the replaced methods, that the caller has put on."""
    names = []
    for path, part in module.named_modules():
        own = vars(part)
        hooks = [*own["_forward_hooks"].values(), *own["_forward_pre_hooks"].values()]
        if "forward" in own and "_hf_hook" not in own:
            hooks.append(own["forward"])
        for hook in hooks:
            while isinstance(hook, functools.partial):
                hook = hook.func
            plain = hook if hasattr(hook, "__qualname__") else type(hook)
            name = f"{plain.__module__}.{plain.__qualname__}"
            if not name.startswith(LIBRARIES):
                names.append(f"{name} on {path or 'the model'}")
    return names
