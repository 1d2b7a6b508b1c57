"""The identity of a model in memory: one hash of its tensors, configuration, modules and hooks.

Two objects with the same identity compute the same. A module enters with its class and what is set
on it, and a hook of the caller with what it does. Buffers that are not saved, such as the angles of
rotary modules, enter where they do not follow from the configuration.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn
from torch.nn.modules import module as everywhere

from poskernel_core.common.specs import digest
from poskernel_core.forward.configuration import build
from poskernel_core.forward.loaded import untouched
from poskernel_core.forward.proof import tokens_of
from poskernel_core.forward.written import FUNCTIONS, digest_of, name_of, told, told_class, value_of
from poskernel_core.models.positions import angles_by_length

CANNOT_MATTER = re.compile(
    r"^(_name_or_path|_commit_hash|transformers_(version|weights)|architectures|auto_map|use_cache|dtype"
    r"|torch_dtype|return_dict|output_(attentions|hidden_states|router_logits)|\w+_token_id|id2label"
    r"|label2id|num_labels)$"
    r"|(attn|experts)_implementation"
)
"""Fields of a configuration that change no number: paths, versions, kernels, names of tokens."""

HARMLESS = ("transformers.", "accelerate.", "peft.")
"""Packages whose hooks only move or collect tensors."""

PASSING = ("training", "gradient_checkpointing", "name_or_path", "max_seq_len_cached")
"""What is set on modules and changes no number."""

CLOSE = 1e-5
"""Largest difference of angles that two devices compute."""

SEEN = 128
"""Tokens on which hooks are seen at work."""


def identity(module: nn.Module, config: Any, dtype: torch.dtype | None = None) -> str:
    """Return the SHA-256 of a model's tensors, configuration, adapters and hooks.

    With ``dtype``, it is that of the same model with its weights in this precision.
    """
    settings = json.loads(config.to_json_string(use_diff=False))
    parts = [[name, *digest_of(tensor, dtype)] for name, tensor in _tensors(module)]
    canonical = build("model", settings).to_json_string(use_diff=False)
    marks = sorted(_marks(module, settings))
    return digest([sorted(parts), _that_matter(json.loads(canonical)), marks])


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


def _that_matter(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not CANNOT_MATTER.search(key)}
        return {key: _that_matter(item) for key, item in kept.items()}
    return [_that_matter(item) for item in value] if isinstance(value, list) else value


def _marks(module: nn.Module, settings: dict[str, Any]) -> Iterator[str]:
    """Yield what else changes the numbers of a model: modules, adapters, hooks, unusual angles."""
    for path, part in module.named_modules():
        yield f"{path}: {told_class(type(part))} {sorted(_set_on(part))}"
        if type(part).__module__.startswith("peft.") and hasattr(part, "active_adapters"):
            named = ("active_adapters", "merged_adapters", "disable_adapters", "scaling")
            yield f"{path}: {[str(getattr(part, name, None)) for name in named]}"
        for name in sorted(part._non_persistent_buffers_set):
            buffer = part._buffers.get(name)
            if buffer is None or not buffer.is_floating_point():
                continue
            if buffer.dtype.itemsize == 2:
                yield f"{path}.{name} in 16 bits"
            if not angles_by_length(settings) and not _follows(part, name, buffer):
                yield f"{path}.{name}: {digest_of(buffer)}"
    hooks = [*_hooks(module)]
    yield from (f"{told(hook)} on {path}" for hook, path in hooks)
    if hooks:
        yield f"logits: {_logits(module)}"


def _set_on(part: nn.Module) -> Iterator[str]:
    """Yield what is set on a module itself: numbers, words, tensors, and methods of the caller."""
    for name, value in vars(part).items():
        if isinstance(value, FUNCTIONS) and hasattr(type(part), name):
            if name != "forward" and not name_of(value).startswith(HARMLESS):
                yield f"{name}={told(value)}"
        elif not (name.startswith("_") or name in PASSING) and (text := value_of(value)):
            yield f"{name}={text}"


def _follows(part: Any, name: str, buffer: Tensor) -> bool:
    """Return whether the angles of a rotary module are those of its configuration."""
    with contextlib.suppress(Exception):  # made of something else
        fresh = type(part)(part.config)._buffers[name]
        return torch.allclose(buffer.cpu().float(), fresh.cpu().float(), rtol=CLOSE, atol=0)
    return False


def _logits(module: Any) -> Any:
    """Return the digest of what a model with hooks computes of some tokens; None if it fails."""
    embedded = module.get_input_embeddings().num_embeddings
    longest = getattr(module.config, "max_position_embeddings", None) or SEEN
    tokens = tokens_of(embedded, min(SEEN, longest)).to(module.device)
    with contextlib.suppress(Exception), untouched(module):  # it is refused where it is proved
        return digest_of(module(input_ids=tokens, use_cache=False).logits)
    return None


def own_hooks(module: nn.Module) -> list[str]:
    """Return the names of the hooks, and of the replaced methods, that the caller has put on."""
    return [f"{name_of(hook)} on {path or 'the model'}" for hook, path in _hooks(module)]


def _hooks(module: nn.Module) -> Iterator[tuple[Any, str]]:
    every = [*everywhere._global_forward_hooks.values()]
    every += everywhere._global_forward_pre_hooks.values()
    placed = [(hook, "every module") for hook in every]
    for path, part in module.named_modules():
        own = vars(part)
        hooks = [*own["_forward_hooks"].values(), *own["_forward_pre_hooks"].values()]
        if "forward" in own and "_hf_hook" not in own:
            hooks.append(own["forward"])
        placed += ((hook, path) for hook in hooks)
    yield from ((hook, path) for hook, path in placed if not name_of(hook).startswith(HARMLESS))
