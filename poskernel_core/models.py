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
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as hf_logging

from poskernel_core import attn_only
from poskernel_core.catalog import Located, weight_files
from poskernel_core.edits import Edit
from poskernel_core.errors import BadRequest, ComputeFailed, PosKernelError, UnsupportedModel
from poskernel_core.finite import is_finite, require_finite
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
from poskernel_core.weights import check_weights

__all__ = ["LoadedModel", "load", "pick_device", "tap"]

T = TypeVar("T")
POSITIONS = {"gpt2": "wpe", "gpt_neo": "wpe", "attn-only": "wpe", "opt": "decoder.embed_positions"}
BLOCKS = {"opt": "decoder.layers", "gpt2": "h", "gpt_neo": "h", "attn-only": "h"}
TORCH_DTYPE = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}

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


@dataclass
class LoadedModel:
    """A model in memory; several threads may run it, one forward pass at a time.

    What is worth keeping as long as the model is, is kept by :meth:`remember`.
    """

    located: Located
    module: PreTrainedModel
    device: torch.device
    _switch: Switch = field(repr=False)
    notes: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    _noting: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def geometry(self) -> Geometry:
        """Sizes of the model's attention."""
        return self.located.geometry

    @property
    def nbytes(self) -> int:
        """Memory that the weights take."""
        return sum(tensor.nbytes for tensor in self.module.parameters())

    def remember(self, name: str, key: Any, make: Callable[[], T]) -> T:
        """Return what was made last under a name if its key is the same, else make it anew.

        Of two threads that want one thing, the second waits for the first.
        """
        with self._noting:
            if name not in self.notes or self.notes[name][0] != key:
                self.notes[name] = key, make()
            return self.notes[name][1]

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

        Raises:
            ComputeFailed: NaN or infinity came out.
        """
        with EXACT:  # never beside a pass in TF32, nor beside another of this model
            self._switch.edit, self._switch.observe = edit or Edit(), observe
            try:
                return self._logits(tokens.to(self.device), keep)
            finally:
                self._switch.edit = self._switch.observe = None

    def _logits(self, tokens: Tensor, keep: int | None) -> Tensor:
        name = repr(self.located.spec.name)
        if keep == 0:
            found = self.module.base_model(tokens, use_cache=False).last_hidden_state
            require_finite(found, name)
            return torch.empty(len(tokens), 0, 0)
        found = self.module(tokens, use_cache=False, logits_to_keep=keep or 0).logits.float()
        return require_finite(found, name)


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


def load(located: Located, device: str = "auto") -> LoadedModel:
    """Load a located model's weights (safetensors; no remote code, no pickles) in float32.

    Raises:
        UnsupportedModel: weights that do not fit the configuration, or are no numbers.
        NoNetwork, UnknownModel: as :mod:`poskernel_core.hub`.
    """
    target = pick_device(device)
    with LOADING:
        module = _read(located)
        _check_finite(located.spec.name, module)
        return tap(located, module, target)


def _read(located: Located) -> PreTrainedModel:
    name = located.spec.name
    read = attn_only.load if located.geometry.architecture == "attn-only" else _load_hub_format
    try:
        return read(located)
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
    name, geometry = located.spec.name, located.geometry
    directory = located.directory or fetch_snapshot(name, located.spec.fingerprint)
    check_weights(name, weight_files(name, directory), geometry, located.config)
    return _from_pretrained(directory, _configuration(directory, geometry))


def _configuration(directory: Path, geometry: Geometry) -> Any:
    """Return the configuration as transformers reads it, which must be as we read it."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    theirs = {field: getattr(config, field, None) for field in THEIR_SIZES}
    ours = {field: getattr(geometry, own) for field, own in THEIR_SIZES.items()}
    if theirs != ours:
        raise ValueError(f"transformers reads {theirs} where PosKernel reads {ours}")
    if getattr(config, "activation_function", None) == "gelu_new":
        config.activation_function = "gelu_pytorch_tanh"  # the same formula in one fused kernel
    return config


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


def _blocks(module: PreTrainedModel, geometry: Geometry) -> nn.ModuleList:
    return module.base_model.get_submodule(BLOCKS.get(geometry.architecture, "layers"))
