"""A model in memory: run forward passes with observers and edits, and access its parts."""

import copy
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from poskernel_core.common.errors import BadRequest, UnsupportedModel
from poskernel_core.forward.adapters import own_attention
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.hooks import IMPLEMENTATION, ForwardPass, Hooks, PassEnded
from poskernel_core.forward.memory import put
from poskernel_core.forward.observers import Batch, Observer, Observers
from poskernel_core.forward.precision import EXACT, require_finite
from poskernel_core.models.catalog import Located
from poskernel_core.models.geometry import Geometry

T = TypeVar("T")
POSITIONS = re.compile(r"(^|\.)(wpe|embed_positions|position_embeddings|positions_embed)$")
"""The name of a module of positional embeddings."""
TORCH_DTYPE = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}


class ModuleState:
    """The attributes and buffers of all modules, as they are when this is made.

    Some modules of transformers change when they run: a rotary module keeps the angles of the
    longest text so far. Every pass begins with this state, whatever ran before.

    Weights and hooks are not part of it. Buffers of numbers are restored even if they were
    overwritten; others (masks, which can be large) only if they were replaced.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = {
            part: (
                dict(vars(part)),
                dict(vars(part)["_buffers"]),
                [
                    (buffer, buffer.clone())
                    for buffer in part.buffers(recurse=False)
                    if buffer.is_floating_point() or buffer.is_complex()
                ],
            )
            for part in module.modules()
        }

    def restore(self, part: nn.Module | None = None) -> None:
        """Restore one module, or all of them."""
        for module in self._parts if part is None else (part,):
            own, (attributes, buffers, numbers) = vars(module), self._parts[module]
            for name in own.keys() - attributes.keys():
                del own[name]
            own.update(attributes)
            own["_buffers"].clear()
            own["_buffers"].update(buffers)
            for buffer, value in numbers:
                buffer.copy_(value)


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Run a module of the caller, in evaluation mode and without gradients.

    Its modes, buffers and hooks, and the random state, are afterwards as before.
    """
    state, devices = ModuleState(module), {parameter.device for parameter in module.parameters()}
    every = [attribute for part in module.modules() for attribute in vars(part).values()]
    held = [
        (attribute, copy.copy(attribute))
        for attribute in every
        if isinstance(attribute, dict | list)
    ]
    module.eval()
    try:
        cuda = [device for device in devices if device.type == "cuda"]
        with torch.random.fork_rng(cuda), torch.no_grad():
            yield
    finally:
        with torch.no_grad():
            state.restore()
        for container, before in held:
            container.clear()
            container.update(before) if isinstance(container, dict) else container.extend(before)


@dataclass
class LoadedModel:
    """A model in memory. It is thread-safe: forward passes run one at a time.

    Observers see passes and edits change them through ``hooks``. :meth:`remember` caches values for
    the model's lifetime. ``lies_on`` names the devices of the weights, if one device cannot hold
    them all; ``hooked_by`` names the caller's own hooks. ``state`` is what the modules keep between
    calls; every pass begins with it.
    """

    located: Located
    module: PreTrainedModel = field(repr=False)
    device: torch.device
    hooks: Hooks = field(repr=False)
    lies_on: tuple[str, ...] = ()
    hooked_by: tuple[str, ...] = ()
    notes: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    state: ModuleState = field(init=False, repr=False)
    _noting: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def __post_init__(self) -> None:
        self.state = ModuleState(self.module)

    @property
    def geometry(self) -> Geometry:
        """Sizes of the model's attention."""
        return self.located.geometry

    @property
    def where(self) -> str:
        """The device of the passes, other devices with weights, and hooks of the caller."""
        hooks = f"with hooks of the caller: {'; '.join(self.hooked_by)}" if self.hooked_by else ""
        return ", ".join(filter(None, dict.fromkeys((str(self.device), *self.lies_on, hooks))))

    @property
    def nbytes(self) -> int:
        """Memory of the weights, in bytes; weights that stay on the disk do not count."""
        return sum(
            parameter.nbytes for parameter in self.module.parameters() if not parameter.is_meta
        )

    def remember(self, name: str, key: Any, make: Callable[[], T]) -> T:
        """Return the cached value of a name if its key is unchanged, else make and cache it.

        Thread-safe: one thread at a time makes a value.
        """
        with self._noting:
            if name not in self.notes or self.notes[name][0] != key:
                self.notes[name] = key, make()
            return self.notes[name][1]

    def position_matrix(self) -> Tensor:
        """Return ``W_pos [pos, model]``, beginning with position 0 (learned positions only)."""
        embedding: Any = positions_of(self.module)
        if embedding is None:
            raise BadRequest(f"{self.located.spec.name!r} has no positional embeddings.")
        first = getattr(embedding, "offset", 0)  # OPT's rows begin at 2
        rows: Tensor = embedding_matrix(embedding)[first : first + self.geometry.n_ctx]
        return rows

    @property
    def body(self) -> nn.Module:
        """The model without its unembedding (for Llama 4, ``base_model`` is wrong)."""
        base: nn.Module = self.module.base_model
        return base if base is not self.module else self.module.get_submodule("model")

    def block(self, layer: int) -> nn.Module:
        """Return one layer's module: norms, attention and MLP."""
        return self._blocks[layer]

    @cached_property
    def _blocks(self) -> nn.ModuleList:
        return blocks_of(self.module, self.geometry.n_layers)

    def cast(self, dtype: str) -> None:
        """Convert the weights to the precision ``dtype``, in place.

        Buffers computed from the configuration, such as rotation angles, do not change.
        """
        for part in self.module.modules():
            for name, parameter in [*part.named_parameters(recurse=False)]:
                put(part, name, parameter.data.to(TORCH_DTYPE[dtype]))

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
        stream: tuple[int, Tensor] | None = None,
        graph: bool = False,
    ) -> Tensor:
        """Return the logits ``[text, pos, vocab]`` of tokens ``[text, pos]``.

        ``edit`` changes the pass. Run the clean pass of a comparison with a plain ``Edit()``, so
        that both are computed in the same way. ``observers`` see the values after the edit.

        ``samples`` are the numbers of the texts in the whole run (default: 0, 1, ...).
        ``positions [text, pos]`` overrides the tokens' positions (default: 0, 1, ...); every token
        still sees the tokens before it in the row.

        ``keep`` limits the logits to the last ``keep`` positions; with 0, no logits are computed.
        With ``until``, the pass ends after the attention of that layer (-1: the last one), without
        logits. With ``stream``, a layer and the residual stream before it, the pass begins there.
        With ``graph``, gradients by tensors of the edit can be taken of the logits.
        """
        batch = Batch(tokens, range(len(tokens)) if samples is None else samples)
        last = None if until is None else range(self.geometry.n_layers)[until]
        if any(layer.keys_of is not None for layer in self.geometry.layers):
            skipped = range(0)  # layers that borrow keys need the layers before the stream
        else:
            skipped = range(0 if stream is None else stream[0])
        running = ForwardPass(batch, Observers(observers), edit, last, self.state.restore, stream)
        given: dict[str, Tensor] = {}
        if positions is not None:  # without a mask, transformers may detect packed texts in them
            given["position_ids"] = positions.to(self.device)
            given["attention_mask"] = torch.ones_like(tokens, device=self.device)
        # EXACT: no other pass runs at the same time
        with torch.inference_mode(not graph), EXACT, self.hooks.during(running):
            self.state.restore()
            try:
                for layer in skipped:
                    self.hooks.skip(self.block(layer), layer)
                logits = self._logits(tokens.to(self.device), keep if until is None else 0, given)
            except PassEnded:
                logits = torch.empty(len(tokens), 0, 0, device="cpu")
            finally:
                for layer in skipped:
                    self.state.restore(self.block(layer))
        return logits

    def _logits(self, tokens: Tensor, keep: int | None, given: dict[str, Tensor]) -> Tensor:
        name = repr(self.located.spec.name)
        if keep == 0:
            output = self.body(tokens, use_cache=False, **given).last_hidden_state
            require_finite(output, name)
            return torch.empty(len(tokens), 0, 0, device="cpu")
        kept: int | Tensor = keep or 0
        if kept and any(layer.keys_of is not None for layer in self.geometry.layers):
            # by a number, transformers leaves out the other queries of layers that borrow keys
            kept = torch.arange(tokens.shape[1], device=tokens.device)[-kept:]
        output = self.module(tokens, use_cache=False, logits_to_keep=kept, **given)
        return require_finite(output.logits.float(), name)


def affine(module: Any) -> tuple[Tensor, Tensor]:
    """Return weights ``[in, out]`` and bias ``[out]`` of a linear module, in float32.

    Of a ``Linear`` or ``Conv1D`` they are read; one with adapters, or quantised, maps unit vectors.
    """
    if type(module) not in (nn.Linear, Conv1D) and hasattr(module, "in_features"):
        return _probed(module)
    weight = module.weight.detach().float()
    weight = weight.T if isinstance(module, nn.Linear) else weight
    none = weight.new_zeros(weight.shape[1])
    return weight, none if module.bias is None else module.bias.detach().float()


@torch.no_grad()
def _probed(module: Any) -> tuple[Tensor, Tensor]:
    own = next(module.parameters())
    unit = torch.eye(module.in_features, device=own.device)
    bias = module(torch.zeros_like(unit[:1])).float()
    return module(unit).float() - bias, bias[0]


def embedding_matrix(embedding: Any) -> Tensor:
    """Return the vectors of an embedding, with its adapters, in float32."""
    if type(embedding) is nn.Embedding or not hasattr(embedding, "base_layer"):
        return embedding.weight.detach().float()
    with torch.no_grad():
        rows = torch.arange(embedding.base_layer.num_embeddings, device=embedding.weight.device)
        return embedding(rows).float()


def decoder_of(module: PreTrainedModel) -> nn.Module:
    """Return the part of a module that reads text and holds its layers."""
    decoder = module.get_decoder()
    lists = isinstance(decoder, nn.Module) and any(
        isinstance(part, nn.ModuleList) for part in decoder.modules()
    )
    return decoder if lists else module


def blocks_of(module: PreTrainedModel, n_layers: int) -> nn.ModuleList:
    """Return a module's layers: of its lists that are as long, the one whose items hold most."""
    lists = [part for part in decoder_of(module).modules() if isinstance(part, nn.ModuleList)]
    fits = [part for part in lists if len(part) == n_layers]
    if not fits:
        raise UnsupportedModel(
            f"{type(module).__name__} has no single list of {n_layers or 'its'} layers: "
            "choose another model."
        )
    return max(fits, key=lambda part: sum(1 for _ in part[0].modules()))


def positions_of(module: PreTrainedModel) -> nn.Embedding | None:
    """Return the positional embedding of a module, or None if it has none."""
    for path, part in decoder_of(module).named_modules():
        if isinstance(part, nn.Embedding) and POSITIONS.search(path):
            return part
    return None


def choose_attention(module: PreTrainedModel, implementation: str) -> None:
    """Set the attention of a module and all its parts: copied layers have configurations too."""
    module.set_attn_implementation(implementation)
    own = [part.config for part in module.modules() if isinstance(part, PreTrainedModel)]
    if all(config._attn_implementation != implementation for config in own):  # noqa: SLF001
        return  # an architecture that takes none
    models = {*map(id, own)}
    for part in module.modules():
        for config in vars(part).values():
            if isinstance(config, PreTrainedConfig) and id(config) not in models:
                config._attn_implementation = implementation  # noqa: SLF001


def attach(hooks: Hooks, module: PreTrainedModel, n_layers: int, architecture: str) -> None:
    """Put hooks on a module, and our attention in place of its own."""
    if not own_attention(architecture):
        choose_attention(module, IMPLEMENTATION)
    module.eval().requires_grad_(False)
    hooks.add_to_embeddings(module.get_input_embeddings(), positions_of(module))
    for part in module.modules():
        if type(part).__name__.endswith("RotaryEmbedding"):
            hooks.add_to_rotation(part)
    for layer, block in enumerate(blocks_of(module, n_layers)):
        hooks.add_to_block(block, layer, architecture)
