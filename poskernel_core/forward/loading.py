"""A name or a directory -> a loaded model whose forward pass can be observed and edited.

The model is the plain Hugging Face module. Its attention function is replaced by
:func:`poskernel_core.forward.attention.attend` (the same softmax, in blocks), which receives the
queries and keys of every architecture exactly as they enter the dot product, and the true scale.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as hf_logging

from poskernel_core.common.errors import BadRequest, ComputeFailed, PosKernelError, UnsupportedModel
from poskernel_core.forward import attn_only
from poskernel_core.forward.adapters import ADAPTED
from poskernel_core.forward.finite import is_finite
from poskernel_core.forward.hooks import IMPLEMENTATION, Hooks
from poskernel_core.forward.loaded import POSITIONS, LoadedModel, blocks_of, body_of
from poskernel_core.forward.memory import check_room
from poskernel_core.forward.proof import check_layers, prove
from poskernel_core.models.catalog import Located, weight_files
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.hub import fetch_snapshot
from poskernel_core.models.weights import check_weights, count_numbers, is_bfloat16

__all__ = ["LoadedModel", "hooked", "load", "pick_device"]

LOADING = threading.Lock()
"""Held while weights are read: transformers changes its own classes and torch's for that time."""
THEIR_SIZES = {
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "hidden_size": "d_model",
    "max_position_embeddings": "n_ctx",
    "vocab_size": "n_vocab",
}
"""Sizes by the names that transformers gives them in every architecture, and by ours."""

hf_logging.disable_progress_bar()


def pick_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` takes CUDA, then MPS, then the CPU.

    Raises:
        BadRequest: the device is not on this machine.
    """
    if name == "auto":
        mps = torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind, _, number = name.partition(":")
    if not there.get(kind, name == "cpu") or (number and int(number) >= torch.cuda.device_count()):
        raise BadRequest(f"This machine has no device {name!r}: use cpu, or auto.")
    return torch.device(name)


def load(located: Located, device: str = "auto", dtype: str = "float32") -> LoadedModel:
    """Load a located model's weights (safetensors; no remote code, no pickles).

    They are in float32. Where ``dtype`` is ``bfloat16``, and so is the file, they stay as they
    are; a file of more bits is read into 16 only where float32 does not fit.

    On a few tokens its attention and its logits are held against the model's own.

    Raises:
        ComputeFailed: they do not fit into memory.
        UnsupportedModel: weights that do not fit the configuration, or are no numbers.
        NoNetwork, UnknownModel: as :mod:`poskernel_core.models.hub`.
    """
    target = pick_device(device)
    with LOADING:
        module = _read(located, target, dtype)
        _check_finite(located.spec.name, module)
        return _proved(located, module, target)


def _read(located: Located, device: torch.device, dtype: str) -> PreTrainedModel:
    name = located.spec.name
    try:
        if located.geometry.architecture == "attn-only":
            return attn_only.load(located)
        return _load_hub_format(located, device, dtype)
    except PosKernelError:
        raise
    except Exception as error:  # what strangers wrote can break transformers in any way
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise ComputeFailed(
                f"{name!r} does not fit into memory: choose a smaller model, or another machine."
            ) from error
        raise UnsupportedModel(
            f"The weights of {name!r} do not fit its config.json or are damaged: {_brief(error)}"
        ) from error


def _proved(located: Located, module: PreTrainedModel, device: torch.device) -> LoadedModel:
    """Return a module ready to be run, whose attention has been held against its own."""
    try:
        model = hooked(located, module, device)
        prove(model)
    except PosKernelError:
        raise
    except Exception as error:  # a stranger's sizes can break transformers in any way
        raise UnsupportedModel(
            f"{located.spec.name!r} cannot be run on a few tokens, as transformers says: "
            f"{_brief(error)}"
        ) from error
    return model


def hooked(located: Located, module: PreTrainedModel, device: torch.device) -> LoadedModel:
    """Return a module in memory ready to be run; its attention is replaced in place."""
    geometry, hooks = located.geometry, Hooks()
    if geometry.architecture not in ADAPTED:
        module.set_attn_implementation(IMPLEMENTATION)
    module.eval().requires_grad_(False).to(device)
    place = POSITIONS.get(geometry.architecture)
    positions = None if place is None else body_of(module).get_submodule(place)
    hooks.add_to_embeddings(module.get_input_embeddings(), positions)
    for part in module.modules():
        if type(part).__name__.endswith("RotaryEmbedding"):
            hooks.add_to_rotation(part)
    for layer, block in enumerate(blocks_of(module, geometry)):
        hooks.add_to_block(block, layer, geometry.architecture)
    model = LoadedModel(located, module, device, hooks)
    check_layers(model)
    hooks.add_to_attentions()
    bare = set(range(geometry.n_layers)) - set(geometry.with_heads)
    hooks.without_heads = dict.fromkeys(
        bare, (geometry.n_heads, geometry.n_kv_heads, geometry.d_head)
    )
    return model


def _load_hub_format(located: Located, device: torch.device, dtype: str) -> PreTrainedModel:
    name, geometry = located.spec.name, located.geometry
    directory = located.directory or fetch_snapshot(name, located.spec.fingerprint)
    files = weight_files(name, directory)
    check_weights(name, files, geometry, located.config)
    numbers = count_numbers(name, files)
    halved = dtype == "bfloat16" and (is_bfloat16(name, files) or not _fits(name, numbers, device))
    check_room(name, numbers, "bfloat16" if halved else "float32", device)
    config = _configuration(directory, geometry)
    _check_skeleton(name, config, numbers)
    return _from_pretrained(directory, config, torch.bfloat16 if halved else torch.float32)


def _check_skeleton(name: str, config: Any, numbers: int) -> None:
    """Refuse a model larger than its file, as transformers makes it, before it is allocated.

    Raises:
        UnsupportedModel: its parts need more numbers than the file holds.
    """
    with torch.device("meta"):  # sizes without memory
        skeleton = AutoModelForCausalLM.from_config(config)
    needed = sum(parameter.numel() for parameter in skeleton.parameters())
    if needed > numbers:
        raise UnsupportedModel(
            f"The weights of {name!r} do not fit its config.json: they hold {numbers:,} numbers, "
            f"its parts need {needed:,}."
        )


def _fits(name: str, numbers: int, device: torch.device) -> bool:
    try:
        check_room(name, numbers, "float32", device)
    except ComputeFailed:
        return False
    return True


def _configuration(directory: Path, geometry: Geometry) -> Any:
    """Return the configuration as transformers reads it, which must be as we read it."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    text = config.get_text_config(decoder=True)
    theirs = {field: getattr(text, field, None) for field in THEIR_SIZES}
    theirs = {field: size for field, size in theirs.items() if size is not None}
    ours = {field: getattr(geometry, THEIR_SIZES[field]) for field in theirs}
    if theirs != ours:
        raise ValueError(f"transformers reads {theirs} where PosKernel reads {ours}")
    if getattr(config, "activation_function", None) == "gelu_new":
        config.activation_function = "gelu_pytorch_tanh"  # the same formula in one fused kernel
    return config


def _from_pretrained(directory: Path, config: Any, dtype: torch.dtype) -> PreTrainedModel:
    module, report = AutoModelForCausalLM.from_pretrained(
        directory,
        config=config,
        dtype=dtype,
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise ValueError(f"{len(lacking)} tensors are missing, the first is {lacking[0]}")
    return module


def _check_finite(name: str, module: nn.Module) -> None:
    """Refuse tensors that hold NaN or infinity; one after the other, without copies."""
    for place, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and not is_finite(tensor):
            raise UnsupportedModel(
                f"The weights of {name!r} hold NaN or infinity, first in {place!r}: they are "
                "damaged, or overflowed in training; fetch or convert them again."
            )


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"there is no {text}" if isinstance(error, KeyError) else text[:250]
