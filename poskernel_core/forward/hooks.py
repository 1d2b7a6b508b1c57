"""Hooks on a Hugging Face module, through which observers see a forward pass and edits change it.

transformers passes an attention's queries, keys, values and scale to a registered function. Ours
calls :func:`poskernel_core.forward.attention.attend`. Architectures that compute their own
attention have an adapter (:mod:`poskernel_core.forward.adapters`). A pass with an
:class:`~poskernel_core.forward.edits.Edit` computes the whole pattern at once instead, so that the
edit can change it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from poskernel_core.common.attention import Slopes
from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.adapters import adapt, own_attention
from poskernel_core.forward.attention import AttentionCall, PatternBlock, attend, uniform_blocks
from poskernel_core.forward.edits import Edit, edited_attention
from poskernel_core.forward.masks import MaskSpec, mask_spec_of
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import require_finite
from poskernel_core.forward.rotation import Rotation, continued, cosines_and_sines, read_rotation

IMPLEMENTATION = "poskernel"
"""The name of our attention in transformers' registry."""

WITHOUT_EFFECT = {
    "position_ids",  # queries and keys already contain the positions
    "cache_position",
    "position_embeddings",
    "use_cache",  # a pass reads whole texts, without a key cache
    "past_key_values",
    "dropout",  # always 0: every module is in evaluation mode
    "output_attentions",  # these only request further outputs
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "logits_to_keep",
    "num_items_in_batch",
    "sliding_window",  # read from the mask; without a mask, _attention reads this argument
}
"""Arguments that transformers passes to attention functions and that do not change the result.

Apart from scaling, soft cap, sinks and mask, these are the only arguments that the supported
architectures pass.
"""


class PassEnded(Exception):
    """Ends a forward pass early, when everything needed has been seen."""


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """One forward pass: its batch, observer and edit.

    Attributes:
        until: the layer after whose attention the pass ends; None for a full pass.
        restore: gives a module the state in which the pass began.
        stream: a layer, and the residual stream to use before it.
    """

    batch: Batch
    observer: Observer
    edit: Edit | None = None
    until: int | None = None
    restore: Callable[[nn.Module], None] = lambda module: None
    stream: tuple[int, Tensor] | None = None


UNOBSERVED = ForwardPass(
    Batch(torch.empty(0, 0, dtype=torch.long, device="cpu"), range(0)), Observer()
)


class Hooks:
    """The hooks on one model's modules; they share the state of the running pass.

    Observers and edits work on one device, ``home``. Tensors of layers on other devices are moved
    there and back.

    Attributes:
        home: the device of observers and edits.
        attentions: the attention module of every layer that has run so far. The references are
            weak, because the modules refer to these hooks; in a reference cycle, the weights would
            outlive the model.
        without_heads: layers without heads; for each, the number of heads, the number of key heads
            and the width to show to observers. The shown heads are zeros and attend to all keys
            equally.
        returned: how many things each layer's block returns; 0: the stream alone, not in a tuple.
    """

    def __init__(self, home: torch.device) -> None:
        self.home = home
        self._pass = UNOBSERVED
        self._turn: Rotation | None = None
        self.attentions = WeakValueDictionary[int, nn.Module]()
        self.without_heads: dict[int, tuple[int, int, int]] = {}
        self.returned: dict[int, int] = {}

    @contextmanager
    def during(self, forward_pass: ForwardPass) -> Iterator[None]:
        """Make a pass the running one inside the block."""
        self._pass = forward_pass
        try:
            yield
        finally:
            self._pass = UNOBSERVED

    def add_to_embeddings(self, tokens: nn.Module, positions: nn.Module | None) -> None:
        """Hook the embeddings: observers see the positional ones, edits may change both."""
        tokens.register_forward_hook(self._tokens)
        if positions is not None:
            positions.register_forward_hook(self._positions)

    def add_to_rotation(self, rotary: nn.Module) -> None:
        """Hook a rotary module: edits may change its cosines and sines."""
        rotary.register_forward_hook(self._rotation, with_kwargs=True)

    def add_to_block(self, block: nn.Module, layer: int, architecture: str) -> None:
        """Hook one block's input, and tag its modules with the layer."""
        block.register_forward_pre_hook(partial(self._residual, layer), with_kwargs=True)
        block.register_forward_hook(partial(self._block_output, layer))
        for part in block.modules():
            shared = "poskernel" in vars(part) and vars(part)["poskernel"][1] != layer
            if shared and any(True for _ in part.parameters()):
                raise UnsupportedModel(
                    f"Layers {vars(part)['poskernel'][1]} and {layer} of this {architecture!r} "
                    "model share one module, which PosKernel cannot tell apart: choose another."
                )
            vars(part)["poskernel"] = (self, layer)
        if method := own_attention(architecture):
            of_heads = [
                part
                for part in block.modules()
                if type(part).__name__.endswith("Attention") and hasattr(part, method)
                if not any(isinstance(child, nn.ModuleList) for child in part.children())
            ]
            adapt(of_heads[-1], architecture, _attend)

    def add_to_attentions(self) -> None:
        """Hook every attention module that has run: observers see inputs, edits change outputs."""
        for layer, attention in self.attentions.items():
            attention.register_forward_pre_hook(
                partial(self._attention_input, layer), with_kwargs=True
            )
            attention.register_forward_hook(partial(self._output, layer))

    def _tokens(self, _module: nn.Module, _args: Any, out: Tensor) -> Tensor:
        edit = self._pass.edit
        return out if edit is None else edit.tokens(out.to(self.home)).to(out.device)

    def _positions(self, _module: nn.Module, _args: Any, out: Tensor) -> Tensor:
        edit, here = self._pass.edit, out.to(self.home)
        here = here if edit is None else edit.positions(here)
        self._pass.observer.positions(here, self._pass.batch)
        return here.to(out.device)

    def rotated(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines after the running pass's edit."""
        edit = self._pass.edit
        if edit is None:
            return cos, sin
        changed = edit.rotation(cos.to(self.home), sin.to(self.home))
        return changed[0].to(cos.device), changed[1].to(sin.device)

    def _rotation(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> Any:
        edit = self._pass.edit
        if edit is None:
            return None
        cos, sin = cosines_and_sines(module, out)
        if edit.angles_of is not None:
            few, more = _first((args, kwargs), edit.angles_of)
            self._pass.restore(module)
            of_few = cosines_and_sines(module, module.forward(*few, **more))
            cos, sin = continued(cos, sin, *of_few)
        cos, sin = self.rotated(cos, sin)
        if isinstance(out, Tensor):
            return torch.complex(cos, sin).to(out.dtype)
        return cosines_and_sines(module, (cos, sin))

    def skip(self, block: nn.Module, layer: int) -> None:
        """Let a block that has run before return its input, until its state is restored."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            x = args[0] if args else kwargs["hidden_states"]
            count = self.returned[layer]
            return (x, *[None] * (count - 1)) if count else x

        vars(block)["forward"] = forward

    def _block_output(self, layer: int, _module: nn.Module, _args: Any, out: Any) -> None:
        self.returned[layer] = 0 if isinstance(out, Tensor) else len(out)

    def _residual(
        self, layer: int, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        edit, x = self._pass.edit, args[0] if args else kwargs["hidden_states"]
        x = x.to(self.home)
        if self._pass.stream is not None and layer == self._pass.stream[0]:
            x = self._pass.stream[1].to(x)
        x = x if edit is None else edit.residual(layer, x)
        self._pass.observer.residual(layer, x, self._pass.batch)
        if layer in self.without_heads:
            self._show_nothing(layer, x)
        if edit is None and self._pass.stream is None:
            return None
        return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

    def _show_nothing(self, layer: int, x: Tensor) -> None:
        """Show observers heads of zeros for a layer without heads, so that no layer is missing.

        These values never reach users: results state that the layer has no heads.
        """
        observer, batch = self._pass.observer, self._pass.batch
        heads, shared, width = self.without_heads[layer]
        observer.attention_input(layer, x, batch)
        zeros = x.new_zeros(1).expand(x.shape[0], heads, x.shape[1], width)
        keys = zeros[:, :shared]
        observer.attention(AttentionCall(layer, zeros, keys, keys, 1.0), batch)
        if observer.wants_patterns:
            full = self._pass.edit is not None
            for block in uniform_blocks(layer, zeros, x.shape[1] if full else None):
                observer.pattern(block, batch)
        observer.heads(layer, zeros, batch)
        if layer == self._pass.until:
            raise PassEnded

    def _attention_input(
        self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        x = args[0] if args else kwargs["hidden_states"]
        observer, edit = self._pass.observer, self._pass.edit
        observer.attention_input(layer, x.to(self.home), self._pass.batch)
        if observer.wants_rotations or (edit is not None and edit.wants_rotations):
            turn = read_rotation(module, layer, x, kwargs)
            self._turn = None if turn is None else turn.to(self.home)
            if self._turn is not None:
                observer.rotation(layer, self._turn, self._pass.batch)

    def _output(self, layer: int, _module: nn.Module, _args: Any, out: Any) -> Any:
        edit = self._pass.edit
        if edit is None:
            return None
        first = out if isinstance(out, Tensor) else out[0]
        changed = edit.output(layer, first.to(self.home)).to(first.device)
        return changed if isinstance(out, Tensor) else (changed, *out[1:])

    def attend(self, call: AttentionCall) -> Tensor:
        """Compute the heads' outputs of a call, with the running pass's observer and edit.

        Raises:
            PassEnded: this is the last layer of the pass.
        """
        running, observer, batch = self._pass, self._pass.observer, self._pass.batch
        there, call = call.q.device, call.to(self.home)
        if running.edit is not None:
            turn = self._turn if running.edit.wants_rotations else None
            call = running.edit.call(call, turn)
        observer.attention(call, batch)
        if running.edit is None or running.edit.keeps_attention:
            see = partial(observer.pattern, batch=batch) if observer.wants_patterns else None
            out = attend(call, see)
        else:
            out, pattern = edited_attention(call, running.edit)
            if observer.wants_patterns:
                observer.pattern(PatternBlock(call.layer, 0, 0, pattern), batch)
        out = require_finite(out, f"The attention of layer {call.layer}")
        observer.heads(call.layer, out, batch)
        if call.layer == running.until:
            raise PassEnded
        return out.to(there)


def _first(given: Any, count: int) -> Any:
    """Return a rotary module's arguments for the first positions only."""
    if isinstance(given, dict):
        return {name: _first(argument, count) for name, argument in given.items()}
    if isinstance(given, tuple):
        return tuple(_first(argument, count) for argument in given)
    positions = isinstance(given, Tensor) and not given.is_floating_point()
    return given[..., :count] if positions else given


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: MaskSpec | Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **further: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers.

    ``attention_mask`` is the :class:`MaskSpec` returned by
    :func:`~poskernel_core.forward.masks.mask_spec_of`; there is no padding.
    """
    mask = attention_mask
    if mask is None:
        mask = MaskSpec(window=further.get("sliding_window"))
    if not isinstance(mask, MaskSpec):
        further["attention_mask"] = mask
    if is_causal is False:
        further["is_causal"] = is_causal
    for name in sorted(further.keys() - WITHOUT_EFFECT):
        if further[name] is not None:
            raise UnsupportedModel(
                f"{type(module).__name__} hands {name!r} to its attention, which PosKernel does "
                "not know: choose a model without it."
            )
    assert isinstance(mask, MaskSpec)
    if not mask.known:
        raise UnsupportedModel(
            "The model masks its attention in a way that PosKernel does not know, as where tokens "
            "see later ones (it knows causal masks over all keys, over a sliding window, and over "
            "chunks): choose another model."
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    z = _attend(
        module, query, key, value, scale, mask.window,
        chunk=mask.chunk, cap=softcap, sinks=s_aux,
    )  # fmt: skip
    return z.transpose(1, 2).contiguous(), None


def _attend(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int | None = None,
    *,
    chunk: int | None = None,
    cap: float | None = None,
    slopes: Slopes | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    if "poskernel" not in vars(module):
        raise UnsupportedModel(
            f"{type(module).__name__} computes attention outside of the model's layers, which "
            "PosKernel does not know: choose another model."
        )
    hooks, layer = vars(module)["poskernel"]
    if hooks.attentions.setdefault(layer, module) is not module:
        raise UnsupportedModel(
            f"Layer {layer} computes two attentions ({type(module).__name__} is the second), which "
            "PosKernel does not know: choose another model."
        )
    if q.shape[1] % k.shape[1]:
        raise UnsupportedModel(
            f"{type(module).__name__} has {q.shape[1]} heads that share {k.shape[1]} key heads: "
            "the first number must be a multiple of the second."
        )
    if q.shape[2] != k.shape[2]:
        raise UnsupportedModel(
            f"{type(module).__name__} attends from {tuple(q.shape)} to {tuple(k.shape)}, which is "
            "no attention of a text to itself: choose a decoder."
        )
    scale = float(scale)
    call = AttentionCall(layer, q, k, v, scale, window, chunk, cap or None, slopes, sinks)
    out: Tensor = hooks.attend(call)
    return out


AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, mask_spec_of)
