"""A name or a directory -> a loaded model whose attention can be watched.

The model is the plain Hugging Face module. Its attention function is replaced by
:func:`poskernel_core.attention.attend` (the same softmax, in blocks), which receives the queries
and keys of every architecture exactly as they enter the dot product, and the true scale.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as hf_logging

from poskernel_core import attn_only
from poskernel_core.catalog import Located, weight_files
from poskernel_core.edits import Edit
from poskernel_core.errors import BadRequest, UnsupportedModel
from poskernel_core.geometry import Geometry
from poskernel_core.hub import fetch_snapshot
from poskernel_core.precision import EXACT
from poskernel_core.tapping import (
    TAPPED,
    LastLayerSeen,
    Switch,
    Watcher,
    tap_block,
    tap_embeddings,
    tap_rotation,
)

__all__ = ["LoadedModel", "load", "pick_device", "tap"]

POSITIONS = {"gpt2": "wpe", "gpt_neo": "wpe", "attn-only": "wpe", "opt": "decoder.embed_positions"}
BLOCKS = {"opt": "decoder.layers", "gpt2": "h", "gpt_neo": "h", "attn-only": "h"}
TORCH_DTYPE = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}

LOADING = threading.Lock()
"""Held while weights are read: transformers changes its own classes and torch's for that time."""

hf_logging.disable_progress_bar()


@dataclass
class LoadedModel:
    """A model in memory; several threads may run it, one forward pass at a time.

    ``notes`` holds what is worth keeping as long as the model is, by the name of who wrote it.
    """

    located: Located
    module: PreTrainedModel
    device: torch.device
    _switch: Switch = field(repr=False)
    notes: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def geometry(self) -> Geometry:
        """Sizes of the model's attention."""
        return self.located.geometry

    @property
    def nbytes(self) -> int:
        """Memory that the weights take."""
        return sum(tensor.nbytes for tensor in self.module.parameters())

    def position_matrix(self) -> Tensor:
        """Return ``W_pos [pos, model]``, the row of position 0 first (learned positions only).

        Raises:
            BadRequest: the model has no positional embeddings.
        """
        place = POSITIONS.get(self.geometry.architecture)
        if place is None:
            raise BadRequest(f"{self.located.spec.name!r} has no positional embeddings.")
        embedding = self.module.base_model.get_submodule(place)
        first = getattr(embedding, "offset", 0)  # OPT's rows begin at 2
        return embedding.weight[first : first + self.geometry.n_ctx]

    def block(self, layer: int) -> nn.Module:
        """Return one layer: its norms, its attention, its MLP."""
        return _blocks(self.module, self.geometry)[layer]

    def cast(self, dtype: str) -> None:
        """Convert the weights to the precision called ``dtype``, in place."""
        self.module.to(TORCH_DTYPE[dtype])

    @torch.inference_mode()
    def watch(
        self,
        tokens: Tensor,
        watcher: Watcher,
        positions: Tensor | None = None,
        last: int | None = None,
    ) -> None:
        """Run tokens ``[text, pos]`` up to the last layer's attention, showing all to the watcher.

        ``positions [text, pos]`` are those that the tokens are said to stand at (default: 0, 1,
        ...); every token still sees those before it in the row. What is behind the attention of
        the layer ``last`` (default: of all) is never run.
        """
        ids = {} if positions is None else {"position_ids": positions.to(self.device)}
        with EXACT:
            self._switch.watcher = watcher
            self._switch.last_layer = self.geometry.n_layers - 1 if last is None else last
            try:
                self.module.base_model(tokens.to(self.device), use_cache=False, **ids)
            except LastLayerSeen:
                pass
            finally:
                self._switch.watcher = None

    @torch.inference_mode()
    def run(
        self,
        tokens: Tensor,
        edit: Edit | None = None,
        observe: Callable[[int, Tensor], None] | None = None,
        keep: int | None = None,
    ) -> Tensor:
        """Return the logits ``[text, pos, vocab]`` of tokens ``[text, pos]``, changed by an edit.

        ``keep`` limits them to the last so many positions; for 0 nothing is unembedded.

        ``observe`` sees the number and the final pattern ``[text, head, query, key]`` of every
        layer. A clean run is one whose edit changes nothing: both take the same road.
        """
        with EXACT:  # never beside a pass in TF32, nor beside another of this model
            self._switch.edit, self._switch.observe = edit or Edit(), observe
            try:
                return self._logits(tokens.to(self.device), keep)
            finally:
                self._switch.edit = self._switch.observe = None

    def _logits(self, tokens: Tensor, keep: int | None) -> Tensor:
        if keep == 0:
            self.module.base_model(tokens, use_cache=False)
            return torch.empty(len(tokens), 0, 0)
        return self.module(tokens, use_cache=False, logits_to_keep=keep or 0).logits.float()


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
        raise BadRequest(f"This machine has no device {name!r}: use cpu, or auto.")
    return torch.device(name)


def load(located: Located, device: str = "auto") -> LoadedModel:
    """Load a located model's weights (safetensors; no remote code, no pickles) in float32.

    Raises:
        UnsupportedModel: weights that do not fit the configuration.
        NoNetwork, UnknownModel: as :mod:`poskernel_core.hub`.
    """
    target = pick_device(device)
    with LOADING:
        if located.geometry.architecture == "attn-only":
            module = attn_only.load(located)
        else:
            module = _load_hub_format(located)
        return tap(located, module, target)


def tap(located: Located, module: PreTrainedModel, device: torch.device) -> LoadedModel:
    """Make a module in memory ready to be watched; its attention is replaced in place."""
    if located.geometry.architecture != "gpt_neo":
        module.set_attn_implementation(TAPPED)
    module.eval().requires_grad_(False).to(device)
    switch = Switch(last_layer=located.geometry.n_layers - 1)
    place = POSITIONS.get(located.geometry.architecture)
    positions = None if place is None else module.base_model.get_submodule(place)
    tap_embeddings(module.get_input_embeddings(), positions, switch)
    if located.geometry.scheme == "rotary":
        tap_rotation(module.base_model.get_submodule("rotary_emb"), switch)
    for layer, block in enumerate(_blocks(module, located.geometry)):
        tap_block(block, layer, located.geometry.architecture, switch)
    return LoadedModel(located, module, device, switch)


def _load_hub_format(located: Located) -> PreTrainedModel:
    name = located.spec.name
    directory = located.directory or fetch_snapshot(name, located.spec.fingerprint)
    weight_files(name, directory)
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    if getattr(config, "activation_function", None) == "gelu_new":
        config.activation_function = "gelu_pytorch_tanh"  # the same formula in one fused kernel
    try:
        return _from_pretrained(directory, config)
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


def _from_pretrained(directory: Path, config: Any) -> PreTrainedModel:
    module, report = AutoModelForCausalLM.from_pretrained(
        directory,
        config=config,
        dtype=torch.float32,
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


def _brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def _blocks(module: PreTrainedModel, geometry: Geometry) -> nn.ModuleList:
    return module.base_model.get_submodule(BLOCKS.get(geometry.architecture, "layers"))
