"""Split the input of one layer's attention into what earlier parts of the model wrote.

The residual stream is a sum of components: the token embedding, the positional embedding, every
earlier head and MLP, and the biases of the attention outputs. With the text's own norms held fixed,
a layer's queries and keys are linear in the stream, so they are sums over the same components. No
table of architectures is needed: the parts of a block are found by what they read and put out, and
every model is checked, once for its blocks and at each reading for its queries and keys.

::

    reading = read_components(model, tokens, layer)  # one reading layer at a time
    reading.names                                    # embedding, ..., L0H0, ..., MLP 0, biases
    reading.projected("key", head)                   # [component, text, pos, d], adds up to k
    part.rows * reading.weight("key", head)[..., None]   # what to sum over texts for mean keys
    reading.key.through(part, sums, head)            # then map and rotate the means
    read_written(model, tokens, position)            # all components, as the logits read them
    read_circuits(model, tokens)                     # values and output of the heads of every layer
    read_first_layer(model)                          # layer 0 as matrices, with its neurons
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.heads import head_name
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.hooks import PassEnded
from poskernel_core.forward.loaded import LoadedModel, affine, embedding_matrix
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import EXACT, require_finite
from poskernel_core.forward.proof import made_up
from poskernel_core.forward.rotation import Rotation, read_rotation, unrotated_call

EQUAL = {torch.float32: 1e-4, torch.bfloat16: 6e-2}
"""Largest difference of values that count as equal, relative to the largest of them."""
LARGE = 1024.0
"""Size of the vectors that probe a norm: large enough for its epsilon not to count."""


@dataclass(frozen=True, eq=False)
class Part:
    """Components that enter the stream in one way: the heads of a layer, or one vector.

    Attributes:
        names: of the components.
        rows: the components, in the basis of ``out``. Norms behind the block, at the text's own
            scale, are applied.
        out: maps rows to what enters the stream, for heads their slices of ``W_O``; None if rows
            are in the basis of the stream.
    """

    names: tuple[str, ...]
    rows: Float[Tensor, "component text pos width"]
    out: Float[Tensor, "component width model"] | None = None

    def written(self) -> Float[Tensor, "component text pos model"]:
        """Return what the components add to the stream."""
        return self.rows if self.out is None else self.rows @ self.out[:, None]


@dataclass(frozen=True, eq=False)
class Side:
    """How a reading layer makes its queries, or its keys, of the stream, before rotation.

    ``scale (x M / sigma + inner) + outer``, with ``M`` the norm's centring and gain and ``W_Q`` or
    ``W_K`` in one.

    Attributes:
        matrix: ``M``, one for each query or key head.
        inner: ``W beta + b``.
        outer: the bias of a norm of queries or keys.
        scale: that norm's factor at the text's own scale; ones without such a norm.
        shared: number of query heads that share one of these.
    """

    matrix: Float[Tensor, "own model d"]
    inner: Float[Tensor, "own d"]
    outer: Float[Tensor, "own d"]
    scale: Float[Tensor, "text own pos"]
    shared: int

    def through(
        self, part: Part, rows: Float[Tensor, "component *batch pos width"], head: int
    ) -> Float[Tensor, "component *batch pos d"]:
        """Return rows of a part, already weighted, as unrotated queries or keys of a head."""
        matrix = self.matrix[head // self.shared]
        maps = matrix[None] if part.out is None else part.out @ matrix
        return rows @ maps.reshape(len(maps), *(1,) * (rows.ndim - 3), *maps.shape[1:])

    def constant(self, head: int) -> Float[Tensor, "text pos d"]:
        """Return the component that does not come from the stream, before rotation."""
        own = head // self.shared
        return self.scale[:, own, :, None] * self.inner[own] + self.outer[own]

    def linear(self, x: Float[Tensor, "text pos model"]) -> Float[Tensor, "text own pos d"]:
        """Return what ``x``, in the basis of the stream, is mapped to by all heads."""
        return x[:, None] @ self.matrix + self.inner[:, None]


@dataclass(frozen=True, eq=False)
class Reading:
    """The components of some texts that one layer reads, and how it reads them.

    Attributes:
        parts: the components of the stream, in the order in which they are written.
        scale: ``1 / sigma`` of the norm before attention; ones without one.
        query, key: how queries and keys are made.
        rotation: what turns queries and keys, or None.
        call: the attention's real queries and keys.
    """

    layer: int
    parts: tuple[Part, ...]
    scale: Float[Tensor, "text pos"]
    query: Side
    key: Side
    rotation: Rotation | None
    call: AttentionCall

    @property
    def has_constant(self) -> bool:
        """Whether queries or keys have a component that does not come from the stream."""
        sides = (self.query, self.key)
        return any(bool(each.any()) for side in sides for each in (side.inner, side.outer))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all components."""
        own = tuple(name for part in self.parts for name in part.names)
        return (*own, "constant") if self.has_constant else own

    def weight(self, side: Literal["query", "key"], head: int) -> Float[Tensor, "text pos"]:
        """Return the factor by which a text's norms scale its components on a head's side."""
        own: Side = getattr(self, side)
        return self.scale * own.scale[:, head // own.shared]

    def projected(
        self, side: Literal["query", "key"], head: int, rows: slice = slice(None)
    ) -> Float[Tensor, "component text pos d"]:
        """Return the components of a head's queries or keys at some positions.

        They add up to the head's ``call.q`` or ``call.k``.
        """
        return torch.cat([*self.each(side, head, rows)])

    def each(
        self, side: Literal["query", "key"], head: int, rows: slice = slice(None)
    ) -> Iterator[Float[Tensor, "component text pos d"]]:
        """Yield the same part by part, which takes less memory."""
        own: Side = getattr(self, side)
        weight = self.weight(side, head)[:, rows, None]
        for part in self.parts:
            yield self.turned(own.through(part, part.rows[:, :, rows] * weight, head), rows)
        if self.has_constant:
            yield self.turned(own.constant(head)[None, :, rows], rows)

    def turned(
        self, x: Float[Tensor, "component text pos d"], rows: slice = slice(None)
    ) -> Float[Tensor, "component text pos d"]:
        """Return queries or keys after rotation, which is that of all texts of one length."""
        if self.rotation is None:
            return x
        cos, sin = self.rotation.cos[:1], self.rotation.sin[:1]  # some have one for each text
        same = replace(self.rotation, cos=cos, sin=sin)
        return same.applied(x.transpose(0, 1), rows).transpose(0, 1)


def read_components(model: LoadedModel, tokens: Tensor, layer: int) -> Reading:
    """Run texts up to one layer's attention; return the components that it reads."""
    return read_layers(model, tokens, (layer,))[0]


@torch.inference_mode()
def read_layers(model: LoadedModel, tokens: Tensor, layers: Sequence[int]) -> list[Reading]:
    """Run texts once, up to the last of some layers; return the components that each reads."""
    seen = _Components(model, _known_blocks(model), layers)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=max(layers))
        with in_float32(model.module):
            return [seen.reading(layer) for layer in layers]


@dataclass(frozen=True, eq=False)
class Unembedding:
    """How logits are made of the stream behind the last layer, before a soft cap.

    ``norm`` is the final one; a factor of all logits (Cohere, Granite) is in ``weight``, ``bias``.
    """

    norm: Norm
    weight: Float[Tensor, "model vocab"]
    bias: Float[Tensor, " vocab"]

    def read(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch model"]:
        """Return the linear part of the final norm, with ``sigma = 1``: ``weight`` reads it."""
        return self.norm.linear(x).reshape(x.shape)

    def readers(self, tokens: Sequence[int]) -> Float[Tensor, "model token"]:
        """Return the weights of some tokens less the mean over the vocabulary."""
        mean = self.weight.mean(dim=1, keepdim=True)
        return self.weight[:, [*tokens]].double() - mean.double()


@dataclass(frozen=True, eq=False)
class Written:
    """What all components wrote at one position of a text, and how the logits there read them.

    ``parts`` are at this position alone, ``scale`` is ``1 / sigma`` of the final norm.
    """

    parts: tuple[Part, ...]
    unembedding: Unembedding
    scale: float
    logits: Float[Tensor, " vocab"]

    def through(
        self, x: Float[Tensor, "*batch model"], tokens: Sequence[int]
    ) -> Float[Tensor, "*batch token"]:
        """Return what vectors of the stream add to some tokens' logits, less the mean of all."""
        own = self.unembedding
        return self.scale * own.read(x.double()) @ own.readers(tokens)


@dataclass(frozen=True, eq=False)
class Circuit:
    """How the heads of a layer turn the stream into values, and these into what they write.

    ``scale`` is ``1 / sigma`` of the norm before attention; ``out`` are the heads' slices of
    ``W_O``, through a norm behind the block with scale 1.
    """

    scale: Float[Tensor, "text pos"]
    value: Side
    out: Float[Tensor, "head d model"]

    def values(self, x: Float[Tensor, "token model"], head: int) -> Float[Tensor, "token d"]:
        """Return a head's values of vectors of the stream, with the mean scales."""
        own, value = head // self.value.shared, self.value
        inside = self.scale.mean() * (x @ value.matrix[own]) + value.inner[own]
        return value.scale[:, own].mean() * inside + value.outer[own]


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """Layer 0 of a model as matrices, in float32 on the CPU.

    Attributes:
        embedding: token embeddings ``[vocab, model]``.
        positions: positional embeddings ``[pos, model]``; zeros for models without them.
        norm1, norm2: the norms before attention and before the MLP.
        w_v: the first norm's centring and gain and ``W_V`` in one, ``[head, model, d]``; heads
            that share values repeat them.
        b_v: values of the first norm's bias, ``[head, d]``.
        w_o: ``[head, d, model]``, ``b_o [model]``.
        w_in: input weights of the neurons ``[model, neuron]``, ``b_in [neuron]``.
        w_out: output weights ``[neuron, model]``.
    """

    embedding: Tensor
    positions: Tensor
    norm1: Norm
    norm2: Norm
    w_v: Tensor
    b_v: Tensor
    w_o: Tensor
    b_o: Tensor
    w_in: Tensor
    b_in: Tensor
    w_out: Tensor

    def values(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "head *batch d"]:
        """Return every head's values of vectors of the stream."""
        read = torch.einsum("...m,hmd->h...d", self.norm1.scale(x)[..., None] * x, self.w_v)
        return read + self.b_v.reshape(len(read), *(1,) * (x.ndim - 1), -1)


@dataclass(frozen=True)
class Seen:
    """Values inside layer 0 on some texts.

    Attributes:
        stream: the stream before the layer, ``[text, pos, model]``.
        heads: every head's output before the projection, ``[text, pos, head, d]``.
        between: the stream before the MLP, ``[text, pos, model]``.
        activation: the neurons' pre-activations, ``[text, pos, neuron]``.
    """

    stream: Tensor
    heads: Tensor
    between: Tensor
    activation: Tensor


def read_first_layer(model: LoadedModel) -> FirstLayer:
    """Return layer 0 as matrices; they are cached with the model.

    Raises:
        UnsupportedModel: no neurons read the stream behind its attention.
    """
    layer: FirstLayer = model.remember("first layer", None, lambda: _first_layer(model))
    return layer


@torch.inference_mode()
def _first_layer(model: LoadedModel) -> FirstLayer:
    block, (norm, w_in, w_out) = _neurons(model)
    seen = _Components(model, _known_blocks(model), (0,))
    embedding = embedding_matrix(model.module.get_input_embeddings())
    positions = embedding.new_zeros(model.geometry.n_ctx, embedding.shape[1])
    if model.geometry.scheme == "learned":
        positions = model.position_matrix().float()
    tokens = made_up(model)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=0)
        embedded = embedding[tokens[0]] + positions[: tokens.shape[1]]
        if not _equal(embedded, seen.stream(0)[0].to(embedded)):
            raise _refused(model, 0, "the stream is not the sum of the embeddings")
        with in_float32(model.module):
            value, (w_o, b_o, _) = seen.circuit(0).value, seen.out(block)
            norms = [_scaled_norm(model, each, embedding[:1]) for each in (block.norm, norm)]
            matrices = (*affine(w_in), affine(w_out)[0])
    values = (repeat_kv(each, len(w_o)) for each in (value.matrix, value.inner))
    parts = (embedding, positions, *values, w_o, b_o.flatten(), *matrices)
    names = ("embedding", "positions", "w_v", "b_v", "w_o", "b_o", "w_in", "b_in", "w_out")
    tensors = {name: part.cpu() for name, part in zip(names, parts, strict=True)}
    return FirstLayer(norm1=norms[0], norm2=norms[1], **tensors)


def _scaled_norm(model: LoadedModel, module: Any, x: Float[Tensor, "one model"]) -> Norm:
    norm = Norm.of(module, torch.zeros_like(x[0]))
    if not _equal(norm.linear(x) * norm.scale(x)[..., None] + norm.bias, module.forward(x).to(x)):
        raise _refused(model, 0, "a norm's scale is not that of its input's variance")
    return replace(norm, gain=norm.gain.cpu(), bias=norm.bias.cpu())


@torch.inference_mode()
def see_first_layer(model: LoadedModel, tokens: Tensor) -> Seen:
    """Run tokens ``[text, pos]`` through layer 0 up to its neurons; return the values inside.

    This registers separate hooks, because observers do not see values between attention and MLP.
    """
    block, (norm, w_in, _) = _neurons(model)
    assert block.norm is not None
    assert block.out is not None
    kept: dict[str, Tensor] = {}

    def before(name: str) -> Any:
        return lambda _module, args: kept.update({name: args[0].float().cpu()})

    def end(_module: nn.Module, _args: Any, out: Tensor) -> None:
        kept["activation"] = out.float().cpu()
        raise PassEnded

    with (
        EXACT,  # no other pass runs while the hooks are registered
        block.norm.register_forward_pre_hook(before("stream")),
        block.out.register_forward_pre_hook(before("heads")),
        norm.register_forward_pre_hook(before("between")),
        w_in.register_forward_hook(end),
        suppress(PassEnded),
    ):
        model.body(tokens.to(model.device), use_cache=False)
    require_finite(kept["activation"], "The first layer")
    shaped = {name: part.reshape(*tokens.shape, -1) for name, part in kept.items()}  # OPT flattens
    shaped["heads"] = shaped["heads"].unflatten(-1, (model.geometry.n_heads, -1))
    return Seen(**shaped)


def _neurons(model: LoadedModel) -> tuple[_Block, tuple[nn.Module, nn.Module, nn.Module]]:
    block = _known_blocks(model)[0]
    if block.norm is None or block.behind is not None or block.neurons is None:
        raise UnsupportedModel(
            f"Layer 0 of {model.located.spec.name!r} has no neurons that read the normed stream "
            "behind its attention (it may have attention alone, or both side by side): choose "
            "another model."
        )
    return block, block.neurons


@torch.inference_mode()
def read_written(
    model: LoadedModel, tokens: Tensor, position: int, observers: Sequence[Observer] = ()
) -> Written:
    """Run one text ``[1, pos]``; return what was written at a position, and how logits read it."""
    seen, unembedding = _Components(model, _known_blocks(model), ()), read_unembedding(model)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen, *observers], keep=tokens.shape[1] - position)
        with in_float32(model.module):
            return seen.written(unembedding, position)


@torch.inference_mode()
def read_circuits(model: LoadedModel, tokens: Tensor) -> dict[int, Circuit]:
    """Run texts; return the circuits of every layer with heads."""
    layers = model.geometry.with_heads
    seen = _Components(model, _known_blocks(model), layers)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=-1)
        with in_float32(model.module):
            return {layer: seen.circuit(layer) for layer in layers}


@torch.inference_mode()
def read_unembedding(model: LoadedModel) -> Unembedding:
    """Return how a model makes its logits, checked on a few tokens."""
    head: Any = model.module.get_output_embeddings()
    final, factor = model.remember("unembedding", None, lambda: _final_of(model, head))
    weight, bias = (each.to(model.hooks.home) for each in affine(head))
    with in_float32(model.module):
        norm = Norm.of(final, weight.new_zeros(1, 1, len(weight)))
    return Unembedding(norm, factor * weight, factor * bias)


def _final_of(model: LoadedModel, head: nn.Module) -> tuple[nn.Module | None, float]:
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def keep(module: nn.Module, args: Any, out: Tensor) -> None:
        seen.append((module, args[0].to(model.hooks.home), out.to(model.hooks.home).float()))

    layers = range(model.geometry.n_layers)
    inside = {part for layer in layers for part in model.block(layer).modules()}
    with EXACT, ExitStack() as stack, in_float32(model.module):
        for part in model.module.modules():
            if part is head or (_is_norm(part) and part not in inside):
                stack.enter_context(part.register_forward_hook(keep))
        logits = model.run(made_up(model)).to(model.hooks.home)
    *norms, (_, read, put_out) = seen
    config: Any = model.module.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None)
    shown = cap * torch.tanh(put_out / cap) if cap else put_out
    factor = float((shown * logits).sum() / shown.square().sum())
    if not _equal(factor * shown, logits):
        raise UnsupportedModel(
            f"The logits of {model.located.spec.name!r} are not split into contributions: they are "
            "no multiple of what the unembedding puts out; choose another model."
        )
    found = [part for part, _, out in norms if torch.equal(out, read.float())]
    return (found[-1] if found else None), 1.0 if cap else factor


def _known_blocks(model: LoadedModel) -> list[_Block]:
    if any(each.is_meta for each in model.module.parameters()):
        raise UnsupportedModel(
            f"Some weights of {model.located.spec.name!r} stay on the disk, where they cannot be "
            "split into components: choose a smaller model, or another machine."
        )
    blocks: list[_Block] = model.remember("blocks", None, lambda: _blocks_of(model))
    return blocks


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm that is linear once its scale is fixed: ``gain * P x / sigma + bias``.

    ``centred`` tells whether ``P`` subtracts the mean over dimensions (LayerNorm; RMSNorm does
    not); ``eps`` is the constant added to the variance.
    """

    gain: Tensor
    bias: Tensor
    centred: bool
    eps: float = 0.0

    @staticmethod
    def of(module: nn.Module | None, like: Tensor) -> Norm:
        """Read a norm of vectors like these by what it puts out for a few."""
        if module is None:
            return Norm(torch.ones_like(like), torch.zeros_like(like), False)
        flat, wave = torch.full_like(like, LARGE), torch.full_like(like, LARGE)
        wave[..., 1::2] = -LARGE
        bias = module.forward(torch.zeros_like(like)).to(like)
        flat, found = (module.forward(each).to(like) - bias for each in (flat, wave))
        centred = bool(flat.abs().max() < 1e-3 * found.abs().max())
        wave = _centre(wave) if centred else wave
        eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None) or 0.0
        gain = found * (wave.square().mean(-1, keepdim=True) + eps).sqrt() / wave
        return Norm(gain, bias, centred, eps)

    def linear(self, x: Tensor) -> Tensor:
        """Return the norm with scale 1, without its bias."""
        return self.gain * (_centre(x) if self.centred else x)

    def scale(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch"]:
        """Return ``1 / sigma`` of each row: ``1 / sqrt(variance + eps)``."""
        inside = _centre(x) if self.centred else x
        return (inside.square().mean(dim=-1) + self.eps).rsqrt()


def _centre(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def _own_scale(true: Tensor, linear: Tensor) -> Tensor:
    size = linear.square().sum(dim=-1)
    return torch.where(size > 0, (true * linear).sum(dim=-1) / size, 1.0)


def _equal(one: Tensor, two: Tensor, floor: float = 0.0) -> bool:
    """Tell whether values are equal up to rounding, relative to the largest (or ``floor``)."""
    largest = max(float(two.abs().max()), floor)
    return bool((one - two).abs().max() <= EQUAL.get(one.dtype, 1e-4) * largest)


@dataclass(frozen=True, eq=False)
class _Block:
    """How one block is built; None for what it lacks.

    Attributes:
        norm: before attention.
        out: output projection of the heads; None in layers without heads.
        behind: norm of the attention output.
        has_mlp: whether anything but attention writes to the stream.
        neurons: in layer 0, the norm of the stream behind attention, and the maps into and out of
            the neurons that read it.
    """

    norm: nn.Module | None = None
    out: nn.Module | None = None
    behind: nn.Module | None = None
    has_mlp: bool = True
    neurons: tuple[nn.Module, nn.Module, nn.Module] | None = None


def _blocks_of(model: LoadedModel) -> list[_Block]:
    """Find the parts of every block on a few tokens, and check that their outputs add up."""
    if getattr(model.module.config.get_text_config(), "kv_lora_rank", None):
        raise UnsupportedModel(
            f"{model.located.spec.name!r} has compressed keys, which are not split into components "
            "of the residual stream: choose a model whose layers make their keys of the stream."
        )
    found = _Structure(model)
    with EXACT, found.hooked(), in_float32(model.module):
        model.run(made_up(model), observers=[found], keep=0)
        found.close()
    return found.blocks


def _refused(model: LoadedModel, layer: int, why: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{model.located.spec.name!r} is not split into components of the residual stream: in "
        f"layer {layer}, {why}; choose another model."
    )


def _multiplier(model: LoadedModel) -> float:
    """Return the factor of everything that is added to the stream (Granite)."""
    config: Any = model.module.config.get_text_config()
    return float(getattr(config, "residual_multiplier", 1.0))


def _is_norm(module: nn.Module) -> bool:
    return "Norm" in type(module).__name__ and not any(True for _ in module.children())


def _is_map(module: nn.Module) -> bool:
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2


class _Structure(Observer):
    """Find the norms and the output projection of every block by what they read and put out."""

    def __init__(self, model: LoadedModel) -> None:
        self.blocks: list[_Block] = []
        self._model = model
        self._norm: nn.Module | None = None
        self._stream = torch.empty(0)
        self._seen: list[tuple[nn.Module, Tensor | None, Tensor]] = []

    def hooked(self) -> ExitStack:
        stack = ExitStack()
        for layer in range(self._model.geometry.n_layers):
            for part in self._model.block(layer).modules():
                stack.enter_context(part.register_forward_hook(self._keep))
        return stack

    def _keep(self, module: nn.Module, args: Any, out: Any) -> None:
        first = out if isinstance(out, Tensor) else out[0] if isinstance(out, tuple) else None
        if isinstance(first, Tensor):
            home = self._model.hooks.home
            given = args[0].to(home) if args and isinstance(args[0], Tensor) else None
            self._seen.append((module, given, first.to(home, copy=True)))  # Falcon adds in place

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer:
            self._close(layer - 1, x)
        self._stream, self._seen = x.clone(), []

    def close(self) -> None:
        """Close the last block, with its own output."""
        self._close(self._model.geometry.n_layers - 1, self._seen[-1][2])

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        norms = [part for part, _, out in self._seen if _is_norm(part) and torch.equal(out, x)]
        if not norms and not torch.equal(x, self._stream):
            raise _refused(self._model, layer, "attention reads more than the normed stream")
        self._norm = norms[-1] if norms else None

    def _close(self, layer: int, after: Tensor) -> None:
        attention = self._model.hooks.attentions.get(layer)
        if attention is None:
            self.blocks.append(_Block())
            return
        inside = set(attention.modules())
        module, put_out = [
            (part, out) for part, _, out in self._seen if part in inside and _is_map(part)
        ][-1]
        behind = [
            (part, out)
            for part, given, out in self._seen
            if _is_norm(part) and given is not None and part not in inside
            if given.shape == put_out.shape and torch.equal(given, put_out)
        ]
        by_heads, factor = behind[-1][1] if behind else put_out, _multiplier(self._model)
        rest = after - self._stream - factor * by_heads.reshape(after.shape)
        floor = 1e-2 * float(after.abs().max())
        outputs = (out for *_, out in self._seen if out.numel() == rest.numel())
        has_mlp = not _equal(rest, torch.zeros_like(rest), floor)
        if has_mlp and not any(_equal(factor * out.reshape(rest.shape), rest) for out in outputs):
            raise _refused(self._model, layer, "heads and MLP are not all that is added to it")
        between = self._stream + factor * by_heads.reshape(after.shape)
        neurons = None if layer else self._neurons(inside, between)
        norm = behind[-1][0] if behind else None
        self.blocks.append(_Block(self._norm, module, norm, has_mlp, neurons))

    def _neurons(
        self, attention: set[nn.Module], between: Tensor
    ) -> tuple[nn.Module, nn.Module, nn.Module] | None:
        """Find the norm of the stream behind attention, and the first and last map behind it."""
        outside = [
            (part, given, out)
            for part, given, out in self._seen
            if part not in attention and given is not None
        ]
        same = [each for each in outside if each[1].numel() == between.numel()]  # OPT flattens
        norms = [
            (part, out)
            for part, given, out in same
            if _is_norm(part) and _equal(given.reshape(between.shape), between)
        ]
        maps = [each for each in outside if _is_map(each[0])]
        reads = [each for each in maps if norms and torch.equal(each[1], norms[0][1])]
        if not reads:
            return None
        inner = {part for each, *_ in reads for part in each.modules() if part is not each}
        first, last = next(each for each in reads if each[0] not in inner), maps[-1]
        fits = first[2].shape[-1] == last[1].shape[-1] and first[0] is not last[0]
        return (norms[0][0], first[0], last[0]) if fits else None


class _Components(Observer):
    """Gather the components that some layers read on some texts."""

    def __init__(self, model: LoadedModel, blocks: list[_Block], layers: Sequence[int]) -> None:
        self._model, self._blocks, self._layers = model, blocks, layers
        self._until = max(layers, default=len(blocks))
        self._positions: Tensor | None = None
        self._streams: list[Tensor] = []
        self._kept: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}
        self._given: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._inputs: dict[int, Tensor] = {}
        self._calls: dict[int, AttentionCall] = {}
        self._written: dict[int, tuple[list[Part], Tensor]] = {}

    def hooked(self) -> ExitStack:
        stack = ExitStack()
        for at, block in enumerate(self._blocks[: self._until]):
            for name in ("out", "behind"):
                part: nn.Module | None = getattr(block, name)
                if part is not None:
                    stack.enter_context(part.register_forward_hook(partial(self._keep, (at, name))))
        for layer in self._layers:
            entered, attention = partial(self._entered, layer), self._model.hooks.attentions[layer]
            stack.enter_context(attention.register_forward_pre_hook(entered, with_kwargs=True))
        if self._until == len(self._blocks):
            last = self._model.block(self._until - 1)
            stack.enter_context(last.register_forward_hook(self._ended))
            head: Any = self._model.module.get_output_embeddings()
            stack.enter_context(head.register_forward_hook(partial(self._keep, (-1, "logits"))))
        return stack

    def _ended(self, _module: nn.Module, _args: Any, out: Any) -> None:
        first = out if isinstance(out, Tensor) else out[0]
        self._streams.append(first.to(self._model.hooks.home, torch.float32, copy=True))

    def _keep(self, place: tuple[int, str], _module: nn.Module, args: Any, out: Tensor) -> None:
        home = self._model.hooks.home
        self._kept[place] = args[0].to(home).float(), out.to(home).float()

    def _entered(self, layer: int, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self._given[layer] = args[1:], kwargs
        self._there = (args[0] if args else kwargs["hidden_states"]).device

    def positions(self, x: Tensor, batch: Batch) -> None:
        self._positions = x

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        self._streams.append(x.float())

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer in self._layers:
            self._inputs[layer] = x.float()

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer in self._layers:
            self._calls[call.layer] = call

    def stream(self, layer: int) -> Tensor:
        """Return the stream before a layer, ``[text, pos, model]``."""
        return self._streams[layer]

    def reading(self, layer: int) -> Reading:
        norm, scale = self._norm(layer)
        attention, given = self._model.hooks.attentions[layer], self._given[layer][1]
        rotation = _rotation(attention, layer, self._inputs[layer].to(self._there), given)
        rotation = None if rotation is None else rotation.to(scale.device)
        query, key = self._sides(layer, "qk", norm, rotation)
        parts = tuple(self._parts(layer))
        return Reading(layer, parts, scale, query, key, rotation, self._calls[layer])

    def circuit(self, layer: int) -> Circuit:
        norm, scale = self._norm(layer)
        (value,) = self._sides(layer, "v", norm, None)
        return Circuit(scale, value, self.out(self._blocks[layer])[0])

    def written(self, unembedding: Unembedding, position: int) -> Written:
        here, read = slice(position, position + 1), self._kept[-1, "logits"][0][:, :1]
        scale = self._scale(unembedding.norm, self._streams[-1][:, here], read, self._until)
        parts = (replace(each, rows=each.rows[:, :, here]) for each in self._parts(self._until))
        logits = read[0, 0] @ unembedding.weight + unembedding.bias
        return Written(tuple(parts), unembedding, float(scale), logits)

    def _norm(self, layer: int) -> tuple[Norm, Tensor]:
        stream = self._streams[layer]
        norm = Norm.of(self._blocks[layer].norm, stream.new_zeros(1, 1, stream.shape[-1]))
        return norm, self._scale(norm, stream, self._inputs[layer], layer)

    def _scale(self, norm: Norm, stream: Tensor, x: Tensor, layer: int) -> Tensor:
        linear = norm.linear(stream)
        scale = _own_scale(x - norm.bias, linear)
        if not _equal(linear * scale[..., None] + norm.bias, x):
            where = "before attention" if layer < len(self._blocks) else "before the logits"
            raise _refused(self._model, layer, f"the norm {where} is unknown")
        return scale

    def _sides(self, layer: int, names: str, norm: Norm, rotation: Rotation | None) -> list[Side]:
        # queries, keys and values of the unit vectors: with norms linear, their bias, zero
        unit = torch.eye(self._model.geometry.d_model, device=self._there)
        attention, given = self._model.hooks.attentions[layer], self._given[layer]
        probed = [
            _probe(attention, layer, unit, given, norms).to(self._model.hooks.home)
            for norms in ("linear", "bias", "zero")
        ]
        return [
            self._side(layer, name, norm, [getattr(each, name)[0] for each in probed], rotation)
            for name in names
        ]

    def _side(
        self, layer: int, name: str, norm: Norm, probed: list[Tensor], rotation: Rotation | None
    ) -> Side:
        """Return how ``q``, ``k`` or ``v`` is made, from those of the zero and the unit vectors."""
        real = getattr(self._calls[layer], name).float()
        inner, bias, zero = probed
        weights, behind = inner[:, 1:] - inner[:, :1], (bias - zero)[:, 0]
        matrix = norm.gain.view(-1, 1) * weights
        matrix = matrix - matrix.mean(dim=-2, keepdim=True) if norm.centred else matrix
        ones = real.new_ones(1).expand(real.shape[:3])
        side = Side(weights, inner[:, 0], behind, ones, 1)
        plain = side.linear(self._inputs[layer])
        moved = behind[None, :, None].expand_as(plain)
        if rotation is not None:
            plain, moved = rotation.applied(plain), rotation.applied(moved)
        scale = _own_scale(real - moved, plain)
        scale = ones if _equal(scale, ones) else scale
        if not _equal(plain * scale[..., None] + moved, real):
            what = {"q": "queries", "k": "keys", "v": "values"}[name]
            why = f"{what} are no linear map of the normed stream (they may be clipped)"
            raise _refused(self._model, layer, why)
        shared = self._calls[layer].q.shape[1] // real.shape[1]
        constant = norm.bias.view(-1) @ weights + inner[:, 0]
        return Side(matrix, constant, behind, scale, shared)

    def _parts(self, layer: int) -> Iterator[Part]:
        first, biases = self._streams[0], torch.zeros_like(self._streams[0])
        if self._positions is not None:
            positions = self._positions.float().expand_as(first)
            yield Part(("embedding",), (first - positions)[None])
            yield Part(("position",), positions[None])
        else:
            yield Part(("embedding",), first[None])
        for before in range(layer):
            if before not in self._written:
                self._written[before] = self._written_by(before)
            parts, bias = self._written[before]
            yield from parts
            biases = biases + bias
        if biases.any():
            yield Part(("biases",), biases[None])

    def _written_by(self, layer: int) -> tuple[list[Part], Tensor]:
        """Return what a layer adds to the stream, and the bias of its attention output apart."""
        block, grown = self._blocks[layer], self._streams[layer + 1] - self._streams[layer]
        if block.out is None:
            return [Part((f"layer {layer}",), grown[None])], torch.zeros_like(grown)
        part, bias, whole = self._heads(layer, block)
        mlp = [Part((f"MLP {layer}",), (grown - whole)[None])] if block.has_mlp else []
        return [part, *mlp], bias

    def _heads(self, layer: int, block: _Block) -> tuple[Part, Tensor, Tensor]:
        z, out = self._kept[layer, "out"]
        factor, shape = _multiplier(self._model), self._streams[layer].shape
        weight, bias, norm = self.out(block)
        out, scale = out.reshape(shape), z.new_ones(shape[:2])
        if block.behind is not None:
            plain, out = out, self._kept[layer, "behind"][1]
            scale = _own_scale(out - norm.bias, norm.linear(plain))
        scale = factor * scale[..., None]
        rows = z.reshape(*shape[:2], len(weight), -1).permute(2, 0, 1, 3) * scale
        names = tuple(head_name(layer, head) for head in range(len(weight)))
        return Part(names, rows, weight), scale * bias + factor * norm.bias, factor * out

    def out(self, block: _Block) -> tuple[Tensor, Tensor, Norm]:
        """Return ``W_O [head, d, model]`` and its bias through the norm behind it, and that one."""
        weight, bias = affine(block.out)
        norm = Norm.of(block.behind, bias.new_zeros(1, 1, len(bias)))
        weight, bias = norm.linear(weight)[0], norm.linear(bias)
        return weight.reshape(self._model.geometry.n_heads, -1, weight.shape[-1]), bias, norm


def _rotation(module: Any, layer: int, x: Tensor, given: dict[str, Any]) -> Rotation | None:
    """Return what turns a layer's queries and keys; GPT-J looks its angles up by itself."""
    if "position_embeddings" in given or not hasattr(module, "embed_positions"):
        return read_rotation(module, layer, x, given)
    turns = module.embed_positions[given["position_ids"]]
    sin, cos = turns.chunk(2, dim=-1)
    first = 2 * torch.arange(cos.shape[-1], device=cos.device)
    return Rotation(first, first + 1, cos, sin)


def _probe(
    module: nn.Module, layer: int, unit: Tensor, given: tuple[Any, Any], norms: str
) -> AttentionCall:
    """Return unrotated queries and keys of zeros and of the unit vectors, ``[1, head, row, d]``.

    Norms of queries and keys put out their linear part, their bias alone, or zeros. The unit
    vectors are read only with the linear part.
    """
    rows = torch.cat([torch.zeros_like(unit[:1]), unit])[: None if norms == "linear" else 1]

    def replaced(norm: nn.Module, args: Any, _out: Tensor) -> Tensor:
        found = Norm.of(norm, args[0])
        whole = {"linear": found.linear(args[0]), "bias": found.bias}
        return whole.get(norms, torch.zeros_like(args[0]))

    with ExitStack() as stack:
        for part in module.modules():
            if _is_norm(part):
                stack.enter_context(part.register_forward_hook(replaced))
        return unrotated_call(module, layer, rows[None], *given)
