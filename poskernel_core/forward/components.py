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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.heads import head_name
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.blocks import (
    Block,
    Norm,
    equal,
    is_norm,
    known_blocks,
    multiplier,
    own_scale,
    refused,
)
from poskernel_core.forward.loaded import LoadedModel, affine
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import EXACT
from poskernel_core.forward.proof import made_up
from poskernel_core.forward.rotation import Rotation, read_rotation, unrotated_call


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
        return any(bool(constant.any()) for side in sides for constant in (side.inner, side.outer))

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
    seen = _Components(model, known_blocks(model), layers)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=max(layers))
        with in_float32(model.module):
            return [seen.reading(layer) for layer in layers]


@torch.inference_mode()
def read_parts(model: LoadedModel, tokens: Tensor, layer: int) -> list[list[Part]]:
    """Run texts up to a layer; return what the embeddings, then what each layer below it wrote.

    Biases of attention outputs, which are the same for every text, are left out.
    """
    seen = _Components(model, known_blocks(model), (layer,))
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=layer)
        with in_float32(model.module):
            return [[*seen.parts(0)], *(seen.written_by(below)[0] for below in range(layer))]


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


@torch.inference_mode()
def read_written(
    model: LoadedModel, tokens: Tensor, position: int, observers: Sequence[Observer] = ()
) -> Written:
    """Run one text ``[1, pos]``; return what was written at a position, and how logits read it."""
    seen, unembedding = _Components(model, known_blocks(model), ()), read_unembedding(model)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen, *observers], keep=tokens.shape[1] - position)
        with in_float32(model.module):
            return seen.written(unembedding, position)


@torch.inference_mode()
def read_circuits(model: LoadedModel, tokens: Tensor) -> dict[int, Circuit]:
    """Run texts; return the circuits of every layer with heads."""
    layers = model.geometry.with_heads
    seen = _Components(model, known_blocks(model), layers)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=-1)
        with in_float32(model.module):
            return {layer: seen.circuit(layer) for layer in layers}


@torch.inference_mode()
def read_first_block(model: LoadedModel, tokens: Tensor) -> tuple[Tensor, Circuit, Tensor]:
    """Run texts; return layer 0's stream, its circuit, and the bias behind ``W_O``."""
    blocks = known_blocks(model)
    seen = _Components(model, blocks, (0,))
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=0)
        with in_float32(model.module):
            return seen.stream(0), seen.circuit(0), seen.out(blocks[0])[1]


@torch.inference_mode()
def read_unembedding(model: LoadedModel) -> Unembedding:
    """Return how a model makes its logits, checked on a few tokens."""
    head: Any = model.module.get_output_embeddings()
    final, factor = model.remember("unembedding", None, lambda: _final_of(model, head))
    weight, bias = (tensor.to(model.hooks.home) for tensor in affine(head))
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
            if part is head or (is_norm(part) and part not in inside):
                stack.enter_context(part.register_forward_hook(keep))
        logits = model.run(made_up(model)).to(model.hooks.home)
    *norms, (_, read, put_out) = seen
    config: Any = model.module.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None)
    capped = cap * torch.tanh(put_out / cap) if cap else put_out
    factor = float((capped * logits).sum() / capped.square().sum())
    if not equal(factor * capped, logits):
        raise UnsupportedModel(
            f"The logits of {model.located.spec.name!r} are not split into contributions: they are "
            "no multiple of what the unembedding puts out; choose another model."
        )
    final_norms = [part for part, _, out in norms if torch.equal(out, read.float())]
    return (final_norms[-1] if final_norms else None), 1.0 if cap else factor


class _Components(Observer):
    """Gather the components that some layers read on some texts."""

    def __init__(self, model: LoadedModel, blocks: list[Block], layers: Sequence[int]) -> None:
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
        parts = tuple(self.parts(layer))
        return Reading(layer, parts, scale, query, key, rotation, self._calls[layer])

    def circuit(self, layer: int) -> Circuit:
        norm, scale = self._norm(layer)
        (value,) = self._sides(layer, "v", norm, None)
        return Circuit(scale, value, self.out(self._blocks[layer])[0])

    def written(self, unembedding: Unembedding, position: int) -> Written:
        here, read = slice(position, position + 1), self._kept[-1, "logits"][0][:, :1]
        scale = self._scale(unembedding.norm, self._streams[-1][:, here], read, self._until)
        parts = (replace(part, rows=part.rows[:, :, here]) for part in self.parts(self._until))
        logits = read[0, 0] @ unembedding.weight + unembedding.bias
        return Written(tuple(parts), unembedding, float(scale), logits)

    def _norm(self, layer: int) -> tuple[Norm, Tensor]:
        stream = self._streams[layer]
        norm = Norm.of(self._blocks[layer].norm, stream.new_zeros(1, 1, stream.shape[-1]))
        return norm, self._scale(norm, stream, self._inputs[layer], layer)

    def _scale(self, norm: Norm, stream: Tensor, x: Tensor, layer: int) -> Tensor:
        linear = norm.linear(stream)
        scale = own_scale(x - norm.bias, linear)
        if not equal(linear * scale[..., None] + norm.bias, x):
            where = "before attention" if layer < len(self._blocks) else "before the logits"
            raise refused(self._model, layer, f"the norm {where} is unknown")
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
            self._side(layer, name, norm, [getattr(call, name)[0] for call in probed], rotation)
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
        scale = own_scale(real - moved, plain)
        scale = ones if equal(scale, ones) else scale
        if not equal(plain * scale[..., None] + moved, real):
            what = {"q": "queries", "k": "keys", "v": "values"}[name]
            why = f"{what} are no linear map of the normed stream (they may be clipped)"
            raise refused(self._model, layer, why)
        shared = self._calls[layer].q.shape[1] // real.shape[1]
        constant = norm.bias.view(-1) @ weights + inner[:, 0]
        return Side(matrix, constant, behind, scale, shared)

    def parts(self, layer: int) -> Iterator[Part]:
        """Yield the components of the stream before a layer."""
        first, biases = self._streams[0], torch.zeros_like(self._streams[0])
        if self._positions is not None:
            positions = self._positions.float().expand_as(first)
            yield Part(("embedding",), (first - positions)[None])
            yield Part(("position",), positions[None])
        else:
            yield Part(("embedding",), first[None])
        for before in range(layer):
            parts, bias = self.written_by(before)
            yield from parts
            biases = biases + bias
        if biases.any():
            yield Part(("biases",), biases[None])

    def written_by(self, layer: int) -> tuple[list[Part], Tensor]:
        """Return what a layer adds to the stream, and the bias of its attention output apart."""
        if layer not in self._written:
            self._written[layer] = self._written_by(layer)
        return self._written[layer]

    def _written_by(self, layer: int) -> tuple[list[Part], Tensor]:
        block, grown = self._blocks[layer], self._streams[layer + 1] - self._streams[layer]
        if block.out is None:
            return [Part((f"layer {layer}",), grown[None])], torch.zeros_like(grown)
        part, bias, total = self._heads(layer, block)
        mlp = [Part((f"MLP {layer}",), (grown - total)[None])] if block.has_mlp else []
        return [part, *mlp], bias

    def _heads(self, layer: int, block: Block) -> tuple[Part, Tensor, Tensor]:
        z, out = self._kept[layer, "out"]
        factor, shape = multiplier(self._model), self._streams[layer].shape
        weight, bias, norm = self.out(block)
        out, scale = out.reshape(shape), z.new_ones(shape[:2])
        if block.behind is not None:
            plain, out = out, self._kept[layer, "behind"][1]
            scale = own_scale(out - norm.bias, norm.linear(plain))
        scale = factor * scale[..., None]
        rows = z.reshape(*shape[:2], len(weight), -1).permute(2, 0, 1, 3) * scale
        names = tuple(head_name(layer, head) for head in range(len(weight)))
        return Part(names, rows, weight), scale * bias + factor * norm.bias, factor * out

    def out(self, block: Block) -> tuple[Tensor, Tensor, Norm]:
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
        fitted = Norm.of(norm, args[0])
        outputs = {"linear": fitted.linear(args[0]), "bias": fitted.bias}
        return outputs.get(norms, torch.zeros_like(args[0]))

    with ExitStack() as stack:
        for part in module.modules():
            if is_norm(part):
                stack.enter_context(part.register_forward_hook(replaced))
        return unrotated_call(module, layer, rows[None], *given)
