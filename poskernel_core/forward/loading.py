"""Load a located model, so that its forward pass can be observed and edited.

The model is the plain Hugging Face module. Its attention function is replaced by
:func:`poskernel_core.forward.attention.attend` (the same softmax, in blocks). For every
architecture, this function receives the queries and keys exactly as they enter the dot product, and
the scale.
"""

import math
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import infer_auto_device_map
from accelerate.utils import align_module_device
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging as hf_logging

from poskernel_core.common.errors import BadRequest, ComputeFailed, PosKernelError, UnsupportedModel
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import digest
from poskernel_core.forward import attn_only
from poskernel_core.forward.configuration import (
    CANNOT_RUN,
    build,
    kind_of,
    newer_than_tested,
    refusing,
    skeleton,
)
from poskernel_core.forward.gguf_weights import convert, is_converted
from poskernel_core.forward.hooks import Hooks
from poskernel_core.forward.identity import identity
from poskernel_core.forward.loaded import LoadedModel, attach
from poskernel_core.forward.memory import REST, check_room, gigabytes, in_float32, needed, room
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import is_finite
from poskernel_core.forward.proof import check_layers, prove
from poskernel_core.forward.rotation import attention_call
from poskernel_core.models import attached
from poskernel_core.models.catalog import (
    Located,
    check_files_unchanged,
    check_weights_here,
    read_config,
    weight_files,
    weights_entry,
)
from poskernel_core.models.gguf import read_header
from poskernel_core.models.hub import fetch_snapshot
from poskernel_core.models.positions import ALIBI, NONE, ROTARY, PositionUse, keep_use
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.models.weights import (
    UNUSED,
    check_enough,
    check_weights,
    count_numbers,
    no_memory,
    stored_in,
)

__all__ = ["LoadedModel", "has_room", "hooked", "load", "pick_device"]

ROOM = 1.5
"""Free memory that a model needs, as a multiple of the memory for loading; running it needs
more."""
LOADING = threading.Lock()
"""Held while weights are loaded, because transformers then patches its own and torch's global
state."""
LENGTH = 16
"""Tokens of the text on which positions are probed."""
EQUAL = 1e-4
"""Largest difference of equal vectors, relative to their largest number, in float32."""
HALVED = frozenset({"BF16", "F16"})
hf_logging.disable_progress_bar()


@dataclass(frozen=True)
class Placement:
    """Which device has which part of a model that one device cannot hold.

    accelerate moves the inputs of a part to the part's device, and loads parts that stay on the
    disk when they run. The embeddings and layer 0 are at ``home``: questions read their weights.

    Attributes:
        parts: device of each part by module name: a GPU's number, ``cpu`` or ``disk``.
        home: device of observers and edits; the first parts are there.
    """

    parts: dict[str, int | str]
    home: torch.device

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of the parts, in words, fastest first."""
        return tuple(
            dict.fromkeys(
                f"GPU {device}"
                if isinstance(device, int)
                else {"cpu": "memory"}.get(device, device)
                for device in self.parts.values()
            )
        )


def place(
    name: str, skeleton: nn.Module, dtype: torch.dtype, free: dict[int | str, float]
) -> Placement:
    """Assign a device to each part of a model that does not fit on the first device.

    ``skeleton`` is the model on ``meta``; ``free`` is the result of :func:`room`.
    """
    first = next(iter(free))
    kept: Any = getattr(skeleton, "_no_split_modules", None) or ()
    parts = infer_auto_device_map(
        skeleton,
        max_memory={at: int(size / REST) for at, size in free.items()},
        no_split_module_classes=list(kept),
        dtype=dtype,
    )
    if next(iter(parts.values())) != first:
        raise ComputeFailed(
            f"Not even the first layer of {name!r} fits into the {gigabytes(free[first])} that are "
            "free: choose a smaller model, or another machine."
        )
    home = torch.device("cuda", first) if isinstance(first, int) else torch.device(first)
    return Placement(parts, home)


def pick_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` takes CUDA, then MPS, then the CPU."""
    if name == "auto":
        mps = torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind, _, number = name.partition(":")
    if not there.get(kind, name == "cpu") or (number and int(number) >= torch.cuda.device_count()):
        raise BadRequest(f"This machine has no device {name!r}: use cpu, or auto.")
    return torch.device(name)


def has_room(located: Located, device: str) -> bool:
    """Tell whether a model in float32 fits into the free memory of its device and the CPU."""
    free = room(pick_device(device))
    if located.directory is None and located.geometry.architecture == "attn-only":
        numbers = 2 * located.geometry.numbers  # a guess: .pth, no header
    else:
        numbers = _count(located)
    return ROOM * needed(numbers, "float32") <= min(next(iter(free.values())), free["cpu"])


def _directory(located: Located) -> Path:
    return located.directory or fetch_snapshot(located.spec.name, located.spec.fingerprint)


def _weights(located: Located) -> list[Path]:
    return weight_files(located.spec.name, _directory(located))


def _count(located: Located) -> int:
    if located.gguf is not None and not is_converted(located):
        return read_header(located.spec.name, located.gguf).numbers
    return count_numbers(located.spec.name, _weights(located))


def load(located: Located, device: str = "auto", dtype: str = "float32") -> LoadedModel:
    """Load a located model's weights (safetensors; no remote code, no pickles).

    A GGUF file is converted to a float32 model directory the first time.

    Weights are loaded as float32. With ``dtype="bfloat16"``, a bfloat16 file is loaded as bfloat16,
    and any other file only if float32 does not fit into memory.

    Patterns and logits are compared with those of transformers' own attention on a few tokens, and
    which layers use positions is seen in the attention modules.
    """
    check_weights_here(located)
    target = pick_device(device)
    with LOADING:
        with _refusing(located, "The weights of {} do not fit its config.json or are damaged"):
            if located.geometry.architecture == "attn-only":
                module, placement = attn_only.load(located), None
            else:
                module, placement = _load_hub_format(located, target, dtype)
        check_files_unchanged(located)
        if placement is None and dtype != "bfloat16":
            _note_identity(located, module)
        _check_finite(located.spec.name, module)
        with _refusing(located, CANNOT_RUN):
            model = hooked(located, module, target, placement)
            prove(model)
            use = probe_positions(model)
        keep_use(located.spec.fingerprint, use)
        model.located = located.probed(use)
        return model


def _note_identity(located: Located, module: PreTrainedModel) -> None:
    """Note what objects that are loaded from the same files are, in float32 and as they are saved.

    Their tensors are hashed once; a model of another kind has no such objects.
    """
    if attached.model_of(located.spec.fingerprint) is not None:
        return
    with suppress(PosKernelError):  # it is computed again for an object
        tokenizer = load_tokenizer(located)
        own = (
            set()
            if located.geometry.architecture == "attn-only"
            else stored_in(located.spec.name, _weights(located))
        )
        halved = {
            torch.bfloat16 if type_name == "BF16" else torch.float16 for type_name in own & HALVED
        }
        for dtype in (None, *(halved if len(own) == 1 else ())):
            fingerprint = identity(module, module.config, dtype)
            fingerprint = (
                fingerprint if tokenizer is None else digest([fingerprint, tokenizer.digest()])
            )
            attached.note_identity(fingerprint, located.spec)
        attached.note_identity(located.spec.fingerprint, located.spec)


@contextmanager
def _refusing(located: Located, sentence: str) -> Iterator[None]:
    """Refuse a model if anything fails, and say so if that is memory."""
    name = located.spec.name
    with refusing(name, sentence):
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            lack = isinstance(error, MemoryError | torch.OutOfMemoryError)
            if lack or "allocate memory" in str(error):
                raise no_memory(name) from error
            raise


def hooked(
    located: Located,
    module: PreTrainedModel,
    device: torch.device,
    placement: Placement | None = None,
) -> LoadedModel:
    """Return a module as a model ready to run; its attention is replaced in place.

    With a placement, the module is not moved, and ``placement.home`` is the device of its passes.
    """
    if newer := newer_than_tested():
        warnings.warn(newer, stacklevel=2)
    geometry = located.geometry
    device = device if placement is None else placement.home
    hooks = Hooks(device)
    if placement is None:
        module.to(device)
    attach(hooks, module, geometry.n_layers, geometry.architecture)
    model = LoadedModel(located, module, device, hooks, placement.devices if placement else ())
    check_layers(model)
    hooks.add_to_attentions()
    shape = geometry.n_heads, geometry.n_kv_heads, geometry.d_head
    hooks.without_heads = dict.fromkeys(geometry.reasons, shape)
    return model


def _load_hub_format(
    located: Located, device: torch.device, dtype: str
) -> tuple[PreTrainedModel, Placement | None]:
    name, geometry = located.spec.name, located.geometry
    numbers, free = _count(located), room(device)
    everywhere = math.inf if settings().weights_on_disk else sum(free.values())
    if located.gguf is not None and not is_converted(located):
        least = "bfloat16" if dtype == "bfloat16" else "float32"
        check_room(name, numbers, least, everywhere)
        convert(located, lambda made: _skeleton(name, _configuration(name, made), numbers))
    directory = _directory(located)
    files = weight_files(name, directory)
    check_weights(name, files, geometry.numbers)
    halved = dtype == "bfloat16" and (
        stored_in(name, files) == {"BF16"} or needed(numbers, "float32") > everywhere
    )
    read = "bfloat16" if halved else "float32"
    check_room(name, numbers, read, everywhere)
    config = _configuration(name, directory)
    skeleton = _skeleton(name, config, numbers)
    kind, placement = getattr(torch, read), None
    if needed(numbers, read) > min(next(iter(free.values())), free["cpu"]):
        placement = place(name, skeleton, kind, free)
    return _from_pretrained(name, directory, config, kind, placement), placement


def _skeleton(name: str, config: Any, numbers: int) -> PreTrainedModel:
    made = skeleton(name, config)
    check_enough(name, numbers, sum(parameter.numel() for parameter in made.parameters()))
    return made


def _configuration(name: str, directory: Path) -> Any:
    return build(name, read_config(name, directory / "config.json"))


def _from_pretrained(
    name: str, directory: Path, config: Any, dtype: torch.dtype, placement: Placement | None
) -> PreTrainedModel:
    entry = weights_entry(name, directory).relative_to(directory)  # so that this is what is run
    for section in (config, config.get_text_config(decoder=True)):
        section.transformers_weights = str(entry)
    offload = None
    if placement is not None:  # for merged experts, which transformers writes
        offload = tempfile.TemporaryDirectory(prefix="poskernel-weights-")
    module, report = kind_of(name, config).from_pretrained(
        directory,
        config=config,
        dtype=dtype,
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        device_map=None if placement is None else placement.parts,
        offload_folder=None if offload is None else offload.name,
        ignore_mismatched_sizes=True,  # reported below
    )
    if offload is not None:
        weakref.finalize(module, offload.cleanup)
    for tensor, held, expected in sorted(report["mismatched_keys"]):
        raise ValueError(attn_only.mismatch(tensor, held, expected))
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise ValueError(f"{len(lacking)} tensors are missing, the first is {lacking[0]}")
    beyond = sorted(key for key in report["unexpected_keys"] if not UNUSED.search(key))
    if beyond:
        raise UnsupportedModel(
            f"The weights of {name!r} hold more than its config.json describes, first "
            f"{beyond[0]!r}: they may be quantized, or of another architecture; convert them, or "
            "check the config.json."
        )
    return module


def _check_finite(name: str, module: nn.Module) -> None:
    """Refuse tensors with NaN or infinity; checks one module at a time, without copies."""
    for path, part in module.named_modules():
        with align_module_device(part):  # loads weights that stay on the disk
            own = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
            for place, tensor in own:
                if not tensor.is_floating_point() or is_finite(tensor):
                    continue
                if place in part._non_persistent_buffers_set:  # computed from the configuration
                    raise UnsupportedModel(
                        f"The config.json of {name!r} makes {f'{path}.{place}'!r} NaN or infinite: "
                        "check its rope settings, such as rope_theta and factor."
                    )
                raise UnsupportedModel(
                    f"The weights of {name!r} hold NaN or infinity, first in "
                    f"{f'{path}.{place}'!r}: they are damaged, or overflowed in training; "
                    "fetch or convert them again."
                )


def probe_positions(model: LoadedModel) -> PositionUse:
    """Return how the running model uses positions.

    Each attention module is run by itself, on the same vector at every position: one that adds no
    position then has the same key everywhere, so that all visible keys get the same score.

    What cannot be seen, because the keys of a layer are zero or the context is one token, is as
    expected from the configuration.
    """
    seen, geometry = _Seen(model), model.geometry
    token = min(11, geometry.n_vocab - 1)
    tokens = torch.full((1, min(LENGTH, geometry.n_ctx)), token, device="cpu")
    with ExitStack() as stack:
        stack.enter_context(in_float32(model.module))
        for layer, attention in model.hooks.attentions.items():
            probe = partial(seen.probe, layer)
            stack.enter_context(attention.register_forward_pre_hook(probe, with_kwargs=True))
        model.run(tokens, observers=[seen], until=-1)
    return PositionUse(
        embedded=seen.embedded, layers=tuple(seen.kinds[i] for i in range(geometry.n_layers))
    )


class _Seen(Observer):
    """Records whether the stream depends on position, and the kind of positions of each layer."""

    def __init__(self, model: LoadedModel) -> None:
        geometry = model.geometry
        self.embedded = geometry.scheme == "learned"
        own = geometry.scheme if geometry.scheme in (ROTARY, ALIBI) else NONE
        self.kinds = {
            i: own if layer.positions else NONE for i, layer in enumerate(geometry.layers)
        }

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        """See the stream of one token repeated."""
        if layer == 0 and (differs := _differs(x[0])) is not None:
            self.embedded = differs

    def probe(self, layer: int, module: nn.Module, args: Any, given: dict[str, Any]) -> None:
        """Run a layer's attention on one vector, before it runs itself."""
        x = args[0] if args else given["hidden_states"]
        vector = torch.randn(x.shape[-1], generator=torch.Generator("cpu").manual_seed(0))
        call = attention_call(module, layer, vector.to(x).expand_as(x), args[1:], given)
        differs = _differs(call.k[0].transpose(0, 1).flatten(1))
        if call.slopes is not None and any(call.slopes.per_head):
            self.kinds[layer] = ALIBI
        elif differs is not None:
            self.kinds[layer] = ROTARY if differs else NONE


def _differs(rows: Tensor) -> bool | None:
    """Return whether vectors ``[pos, d]`` differ; None if that cannot be seen."""
    rows, largest = rows.float(), float(rows.abs().max())
    if len(rows) < 2 or largest == 0:
        return None
    return float((rows - rows[:1]).abs().max()) > EQUAL * largest
