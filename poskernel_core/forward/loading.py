"""A name or a directory -> a loaded model whose forward pass can be observed and edited.

The model is the plain Hugging Face module. Its attention function is replaced by
:func:`poskernel_core.forward.attention.attend` (the same softmax, in blocks), which receives the
queries and keys of every architecture exactly as they enter the dot product, and the true scale.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as hf_logging

from poskernel_core.common.errors import BadRequest, ComputeFailed, PosKernelError, UnsupportedModel
from poskernel_core.forward import attn_only
from poskernel_core.forward.adapters import ADAPTED
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.finite import is_finite, require_finite
from poskernel_core.forward.hooks import IMPLEMENTATION, ForwardPass, Hooks, PassEnded
from poskernel_core.forward.observers import Batch, Observer, Observers
from poskernel_core.forward.precision import EXACT
from poskernel_core.forward.proof import check_layers, prove
from poskernel_core.models.catalog import Located, weight_files
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.hub import fetch_snapshot
from poskernel_core.models.weights import check_weights

__all__ = ["LoadedModel", "hooked", "load", "pick_device"]

T = TypeVar("T")
POSITIONS = {
    "gpt2": "wpe",
    "gpt_neo": "wpe",
    "attn-only": "wpe",
    "gpt_bigcode": "wpe",
    "opt": "decoder.embed_positions",
    "biogpt": "embed_positions",
}
BLOCKS = (
    "layers", "h", "decoder.layers", "blocks", "language_model.layers", "transformer.blocks",
)  # fmt: skip
"""Where the layers are, tried in this order."""
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
    _hooks: Hooks = field(repr=False)
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
        embedding = self.body.get_submodule(place)
        first = getattr(embedding, "offset", 0)  # OPT's rows begin at 2
        return embedding.weight[first : first + self.geometry.n_ctx]

    @property
    def body(self) -> nn.Module:
        """The model without its unembedding."""
        return _body(self.module)

    @property
    def hooks(self) -> Hooks:
        """What shows the passes of this model, and changes them."""
        return self._hooks

    def block(self, layer: int) -> nn.Module:
        """Return one layer: its norms, its attention, its MLP."""
        return _blocks(self.module, self.geometry)[layer]

    def cast(self, dtype: str) -> None:
        """Convert the weights to the precision called ``dtype``, in place."""
        self.module.to(TORCH_DTYPE[dtype])

    @torch.inference_mode()
    def run(
        self,
        tokens: Tensor,
        edit: Edit | None = None,
        observers: Sequence[Observer] = (),
        *,
        samples: range | None = None,
        positions: Tensor | None = None,
        keep: int | None = None,
        until: int | None = None,
    ) -> Tensor:
        """Return the logits ``[text, pos, vocab]`` of tokens ``[text, pos]``.

        ``edit`` changes the pass; a clean run that is held against a changed one has an ``Edit()``,
        for both to take the same road. ``observers`` are shown what is left.

        ``samples`` are the numbers of the texts among all that are run (default: 0, 1, ...).
        ``positions [text, pos]`` are those that the tokens are said to stand at (default: 0, 1,
        ...); every token still sees those before it in the row.

        ``keep`` limits the logits to the last so many positions; for 0 nothing is unembedded. What
        is behind the attention of the layer ``until`` (-1: the last one) is never run, and no
        logits come out.

        Raises:
            ComputeFailed: NaN or infinity came out.
            UnsupportedModel: the model's attention is told of something that ours does not know.
        """
        batch = Batch(tokens, range(len(tokens)) if samples is None else samples)
        last = None if until is None else range(self.geometry.n_layers)[until]
        running = ForwardPass(batch, Observers(observers), edit, last)
        given: dict[str, Tensor] = {}
        if positions is not None:  # with a mask, nobody takes them for several texts in a row
            given["position_ids"] = positions.to(self.device)
            given["attention_mask"] = torch.ones_like(tokens, device=self.device)
        with (
            EXACT,
            self._hooks.during(running),
        ):  # beside no other pass
            try:
                found = self._logits(tokens.to(self.device), keep if until is None else 0, given)
            except PassEnded:
                found = torch.empty(len(tokens), 0, 0)
        return found

    def _logits(self, tokens: Tensor, keep: int | None, given: dict[str, Tensor]) -> Tensor:
        name = repr(self.located.spec.name)
        if keep == 0:
            found = self.body(tokens, use_cache=False, **given).last_hidden_state
            require_finite(found, name)
            return torch.empty(len(tokens), 0, 0)
        found = self.module(tokens, use_cache=False, logits_to_keep=keep or 0, **given)
        return require_finite(found.logits.float(), name)


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

    On a few tokens its attention and its logits are held against the model's own.

    Raises:
        UnsupportedModel: weights that do not fit the configuration, or are no numbers.
        NoNetwork, UnknownModel: as :mod:`poskernel_core.models.hub`.
    """
    target = pick_device(device)
    with LOADING:
        module = _read(located)
        _check_finite(located.spec.name, module)
        model = hooked(located, module, target)
        prove(model)
        return model


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


def hooked(located: Located, module: PreTrainedModel, device: torch.device) -> LoadedModel:
    """Return a module in memory ready to be run; its attention is replaced in place."""
    geometry, hooks = located.geometry, Hooks()
    if geometry.architecture not in ADAPTED:
        module.set_attn_implementation(IMPLEMENTATION)
    module.eval().requires_grad_(False).to(device)
    place = POSITIONS.get(geometry.architecture)
    positions = None if place is None else _body(module).get_submodule(place)
    hooks.add_to_embeddings(module.get_input_embeddings(), positions)
    for part in module.modules():
        if type(part).__name__.endswith("RotaryEmbedding"):
            hooks.add_to_rotation(part)
    for layer, block in enumerate(_blocks(module, geometry)):
        hooks.add_to_block(block, layer, geometry.architecture)
    model = LoadedModel(located, module, device, hooks)
    check_layers(model)
    hooks.add_to_attentions()
    bare = set(range(geometry.n_layers)) - set(geometry.with_heads)
    hooks.without_heads = dict.fromkeys(
        bare, (geometry.n_heads, geometry.n_kv_heads, geometry.d_head)
    )
    return model


def _load_hub_format(located: Located) -> PreTrainedModel:
    name, geometry = located.spec.name, located.geometry
    directory = located.directory or fetch_snapshot(name, located.spec.fingerprint)
    check_weights(name, weight_files(name, directory), geometry, located.config)
    return _from_pretrained(directory, _configuration(directory, geometry))


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


def _body(module: PreTrainedModel) -> nn.Module:
    """Return a module without its unembedding; Llama 4 names its body otherwise than it says."""
    body: nn.Module = module.base_model
    return body if body is not module else module.get_submodule("model")


def _blocks(module: PreTrainedModel, geometry: Geometry) -> nn.ModuleList:
    for place in BLOCKS:
        try:
            found = _body(module).get_submodule(place)
        except AttributeError:
            continue
        if isinstance(found, nn.ModuleList) and len(found) == geometry.n_layers:
            return found
    raise UnsupportedModel(
        f"No {geometry.n_layers} layers were found in {type(module).__name__}, where PosKernel "
        "looks for them: choose another model."
    )
