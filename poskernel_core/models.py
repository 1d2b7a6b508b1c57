"""A name or a directory -> a loaded model whose attention can be watched.

The model is the plain Hugging Face module. Its attention function is replaced by
:func:`poskernel_core.attention.attend` (the same softmax, in blocks), which receives the queries
and keys of every architecture exactly as they enter the dot product, and the true scale.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
)
from transformers.utils import logging as hf_logging

from poskernel_core import attn_only
from poskernel_core.attention import AttentionCall, Tap, attend
from poskernel_core.catalog import Located, weight_files
from poskernel_core.errors import BadRequest, UnsupportedModel
from poskernel_core.geometry import Geometry
from poskernel_core.hub import fetch_snapshot

__all__ = ["LoadedModel", "Watcher", "load", "pick_device"]

TAPPED = "poskernel"
BLOCKS = {"opt": "decoder.layers", "gpt2": "h", "gpt_neo": "h", "attn-only": "h"}
ATTENTION = {
    "gpt2": "attn",
    "attn-only": "attn",
    "gpt_neo": "attn.attention",
    "gpt_neox": "attention",
}
TORCH_DTYPE = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}

hf_logging.disable_progress_bar()


@runtime_checkable
class Watcher(Tap, Protocol):
    """A tap that also sees the residual stream before every layer."""

    def residual(self, layer: int, x: Tensor) -> None:
        """See ``x``, the residual stream ``[text, pos, model]`` before ``layer``."""


class _LastLayerSeen(Exception):
    """Ends a forward pass once every layer's attention has been seen."""


@dataclass
class _Switch:
    """The watcher of the pass that is running, shared by all attention modules of a model."""

    watcher: Watcher | None = None
    last_layer: int = 0


@dataclass
class LoadedModel:
    """A model in memory. Not thread-safe: one pass at a time."""

    located: Located
    module: PreTrainedModel
    device: torch.device
    _switch: _Switch = field(repr=False)

    @property
    def geometry(self) -> Geometry:
        """Sizes of the model's attention."""
        return self.located.geometry

    def cast(self, dtype: str) -> None:
        """Convert the weights to the precision called ``dtype``, in place."""
        self.module.to(TORCH_DTYPE[dtype])

    @torch.inference_mode()
    def watch(self, tokens: Tensor, watcher: Watcher) -> None:
        """Run tokens ``[text, pos]`` up to the last layer's attention, showing all to the watcher.

        The last layer's MLP, the final norm and the unembedding are never run.
        """
        self._switch.watcher = watcher
        try:
            self.module.base_model(tokens.to(self.device), use_cache=False)
        except _LastLayerSeen:
            pass
        finally:
            self._switch.watcher = None


def pick_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` takes CUDA, then MPS, then the CPU.

    Raises:
        BadRequest: the device is not on this machine.
    """
    if name == "auto":
        mps = torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name.split(":")[0], name == "cpu"):
        raise BadRequest(f"This machine has no device {name!r}: use --device cpu, or auto.")
    return torch.device(name)


def load(located: Located, device: str = "auto") -> LoadedModel:
    """Load a located model's weights (safetensors; no remote code, no pickles) in float32.

    Raises:
        UnsupportedModel: weights that do not fit the configuration.
        NoNetwork, UnknownModel: as :mod:`poskernel_core.hub`.
    """
    target = pick_device(device)
    if located.geometry.architecture == "attn-only":
        module = attn_only.load(located)
        module.set_attn_implementation(TAPPED)
    else:
        module = _load_hub_format(located)
    module.eval().requires_grad_(False).to(target)
    switch = _Switch(last_layer=located.geometry.n_layers - 1)
    for layer, block in enumerate(_blocks(module, located.geometry)):
        _tap_block(block, layer, located.geometry.architecture, switch)
    return LoadedModel(located, module, target, switch)


def _load_hub_format(located: Located) -> PreTrainedModel:
    name = located.spec.name
    directory = located.directory or fetch_snapshot(name, located.spec.fingerprint)
    weight_files(name, directory)
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    if getattr(config, "activation_function", None) == "gelu_new":
        config.activation_function = "gelu_pytorch_tanh"  # the same formula in one fused kernel
    implementation = "eager" if config.model_type == "gpt_neo" else TAPPED
    try:
        return _from_pretrained(directory, config, implementation)
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        raise UnsupportedModel(
            f"The weights of {name!r} do not fit its config.json or are damaged: {_brief(error)}"
        ) from error
    except Exception as error:
        if type(error).__name__ == "SafetensorError":
            raise UnsupportedModel(
                f"The safetensors file of {name!r} is damaged ({_brief(error)}): fetch it again."
            ) from error
        raise


def _from_pretrained(directory: Path, config: Any, implementation: str) -> PreTrainedModel:
    module, report = AutoModelForCausalLM.from_pretrained(
        directory,
        config=config,
        dtype=torch.float32,
        attn_implementation=implementation,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise ValueError(f"{len(lacking)} tensors are missing, the first is {lacking[0]}")
    return module


def _brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def _blocks(module: PreTrainedModel, geometry: Geometry) -> nn.ModuleList:
    return module.base_model.get_submodule(BLOCKS.get(geometry.architecture, "layers"))


def _tap_block(block: nn.Module, layer: int, architecture: str, switch: _Switch) -> None:
    """Show one block's input and attention to the watcher of the running pass."""

    def see_residual(
        _module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]
    ) -> None:
        if switch.watcher is not None:
            switch.watcher.residual(layer, args[0] if args else kwargs["hidden_states"])

    block.register_forward_pre_hook(see_residual, with_kwargs=True)
    attention = block.get_submodule(ATTENTION.get(architecture, "self_attn"))
    vars(attention)["poskernel"] = (switch, layer)
    if architecture == "gpt_neo":
        vars(attention)["_attn"] = types.MethodType(_gpt_neo_attention, attention)


def _tapped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_ignored: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers; masks are ours (no padding here)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = _attend(module, query, key, value, scale, sliding_window)
    return out.transpose(1, 2).contiguous(), None


def _gpt_neo_attention(
    self: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """GPT-Neo's attention: unscaled scores, and a window in its local layers."""
    window = self.config.window_size if self.attention_type == "local" else None
    return _attend(self, query, key, value, 1.0, window), None


def _attend(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None
) -> Tensor:
    switch, layer = vars(module)["poskernel"]
    call = AttentionCall(layer, q, k, v, float(scale), window)
    out = attend(call, switch.watcher or _NOBODY)
    if switch.watcher is not None and layer == switch.last_layer:
        raise _LastLayerSeen
    return out


class _Nobody:
    def attention(self, call: AttentionCall) -> bool:
        return False

    def pattern(self, block: Any) -> None: ...


_NOBODY = _Nobody()

AttentionInterface.register(TAPPED, _tapped_attention)
AttentionMaskInterface.register(TAPPED, lambda *args, **kwargs: None)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Allow TF32 matrix products inside the block when ``dtype`` is ``tf32``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
