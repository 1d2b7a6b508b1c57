"""A model in memory: its passes, observed and edited, and where its parts are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from poskernel_core.common.errors import BadRequest, UnsupportedModel
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.finite import require_finite
from poskernel_core.forward.hooks import ForwardPass, Hooks, PassEnded
from poskernel_core.forward.memory import put
from poskernel_core.forward.observers import Batch, Observer, Observers
from poskernel_core.forward.precision import EXACT
from poskernel_core.models.catalog import Located
from poskernel_core.models.geometry import Geometry

__all__ = ["POSITIONS", "LoadedModel", "blocks_of", "body_of"]

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


@dataclass
class LoadedModel:
    """A model in memory; several threads may run it, one forward pass at a time.

    What is worth keeping as long as the model is, is kept by :meth:`remember`. ``lies_on`` says in
    words where the weights are that one device cannot hold.
    """

    located: Located
    module: PreTrainedModel = field(repr=False)
    device: torch.device
    _hooks: Hooks = field(repr=False)
    lies_on: tuple[str, ...] = ()
    notes: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    _noting: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def geometry(self) -> Geometry:
        """Sizes of the model's attention."""
        return self.located.geometry

    @property
    def where(self) -> str:
        """Where it is run, and where else its weights lie."""
        return ", ".join(dict.fromkeys((str(self.device), *self.lies_on)))

    @property
    def nbytes(self) -> int:
        """Memory that the weights take; those that stay on the disk take none."""
        return sum(each.nbytes for each in self.module.parameters() if not each.is_meta)

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
        embedding: Any = self.body.get_submodule(place)
        first = getattr(embedding, "offset", 0)  # OPT's rows begin at 2
        rows: Tensor = embedding.weight[first : first + self.geometry.n_ctx]
        return rows

    @property
    def body(self) -> nn.Module:
        """The model without its unembedding."""
        return body_of(self.module)

    @property
    def hooks(self) -> Hooks:
        """What shows the passes of this model, and changes them."""
        return self._hooks

    def block(self, layer: int) -> nn.Module:
        """Return one layer: its norms, its attention, its MLP."""
        return blocks_of(self.module, self.geometry)[layer]

    def cast(self, dtype: str) -> None:
        """Convert the weights to the precision called ``dtype``, in place.

        What the configuration makes, such as the angles of a rotation, stays as it is.
        """
        for part in self.module.modules():
            for name, parameter in [*part.named_parameters(recurse=False)]:
                put(part, name, parameter.data.to(TORCH_DTYPE[dtype]))

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

        ``keep`` limits the logits to that many last positions; for 0 nothing is unembedded. What
        comes after the attention of the layer ``until`` (-1: the last one) is never run, and no
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
                found = torch.empty(len(tokens), 0, 0, device="cpu")
        return found

    def _logits(self, tokens: Tensor, keep: int | None, given: dict[str, Tensor]) -> Tensor:
        name = repr(self.located.spec.name)
        if keep == 0:
            found = self.body(tokens, use_cache=False, **given).last_hidden_state
            require_finite(found, name)
            return torch.empty(len(tokens), 0, 0, device="cpu")
        found = self.module(tokens, use_cache=False, logits_to_keep=keep or 0, **given)
        return require_finite(found.logits.float(), name)


def body_of(module: PreTrainedModel) -> nn.Module:
    """Return a module without its unembedding; Llama 4 names its body otherwise than it says."""
    body: nn.Module = module.base_model
    return body if body is not module else module.get_submodule("model")


def blocks_of(module: PreTrainedModel, geometry: Geometry) -> nn.ModuleList:
    """Return a module's layers.

    Raises:
        UnsupportedModel: they are not where they are looked for.
    """
    for place in BLOCKS:
        try:
            found = body_of(module).get_submodule(place)
        except AttributeError:
            continue
        if isinstance(found, nn.ModuleList) and len(found) == geometry.n_layers:
            return found
    raise UnsupportedModel(
        f"No {geometry.n_layers} layers were found in {type(module).__name__}, where PosKernel "
        "looks for them: choose another model."
    )
