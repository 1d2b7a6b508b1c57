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
from poskernel_core.forward.loaded import LoadedModel, affine
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import EXACT
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
    if any(each.is_meta for each in model.module.parameters()):
        raise UnsupportedModel(
            f"Some weights of {model.located.spec.name!r} stay on the disk, where they cannot be "
            "split into components: choose a smaller model, or another machine."
        )
    blocks = model.remember("blocks", None, lambda: _blocks_of(model))
    seen = _Components(model, blocks, layers)
    with EXACT, seen.hooked():
        model.run(tokens, observers=[seen], until=max(layers))
        with in_float32(model.module):
            return [seen.reading(layer) for layer in layers]


@dataclass(frozen=True, eq=False)
class _Norm:
    """A norm that is linear once its scale is fixed: ``gain * P x / sigma + bias``."""

    gain: Tensor
    bias: Tensor
    centred: bool

    @staticmethod
    def of(module: nn.Module | None, like: Tensor) -> _Norm:
        """Read a norm of vectors like these by what it puts out for a few."""
        if module is None:
            return _Norm(torch.ones_like(like), torch.zeros_like(like), False)
        flat, wave = torch.full_like(like, LARGE), torch.full_like(like, LARGE)
        wave[..., 1::2] = -LARGE
        bias = module.forward(torch.zeros_like(like)).to(like)
        flat, found = (module.forward(each).to(like) - bias for each in (flat, wave))
        centred = bool(flat.abs().max() < 1e-3 * found.abs().max())
        wave = _centre(wave) if centred else wave
        return _Norm(found * wave.square().mean(-1, keepdim=True).sqrt() / wave, bias, centred)

    def linear(self, x: Tensor) -> Tensor:
        """Return the norm with scale 1, without its bias."""
        return self.gain * (_centre(x) if self.centred else x)


def _centre(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def _own_scale(true: Tensor, linear: Tensor) -> Tensor:
    """Return the factor from a linear norm to the true one, for every vector."""
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
    """

    norm: nn.Module | None = None
    out: nn.Module | None = None
    behind: nn.Module | None = None
    has_mlp: bool = True


def _blocks_of(model: LoadedModel) -> list[_Block]:
    """Find the parts of every block on a few tokens, and check that their outputs add up."""
    if getattr(model.module.config.get_text_config(), "kv_lora_rank", None):
        raise UnsupportedModel(
            f"{model.located.spec.name!r} has compressed keys, which are not split into components "
            "of the residual stream: choose a model whose layers make their keys of the stream."
        )
    found = _Structure(model)
    with EXACT, found.hooked(), in_float32(model.module):
        model.run(made_up(model), observers=[found], until=-1)
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

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        norms = [part for part, _, out in self._seen if _is_norm(part) and torch.equal(out, x)]
        if not norms and not torch.equal(x, self._stream):
            raise _refused(self._model, layer, "attention reads more than the normed stream")
        self._norm = norms[-1] if norms else None
        if layer == self._model.geometry.n_layers - 1:
            self.blocks.append(_Block(self._norm))

    def _close(self, layer: int, after: Tensor) -> None:
        """Find what attention and MLP added to the stream."""
        attention = self._model.hooks.attentions.get(layer)
        if attention is None:
            self.blocks.append(_Block())
            return
        inside = set(attention.modules())
        module, put_out = [
            (part, out)
            for part, _, out in self._seen
            if part in inside and getattr(getattr(part, "weight", None), "ndim", 0) == 2
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
        self.blocks.append(_Block(self._norm, module, behind[-1][0] if behind else None, has_mlp))


class _Components(Observer):
    """Gather the components that some layers read on some texts."""

    def __init__(self, model: LoadedModel, blocks: list[_Block], layers: Sequence[int]) -> None:
        self._model, self._blocks, self._layers = model, blocks, layers
        self._positions: Tensor | None = None
        self._streams: list[Tensor] = []
        self._kept: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}
        self._given: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._inputs: dict[int, Tensor] = {}
        self._calls: dict[int, AttentionCall] = {}
        self._written: dict[int, tuple[list[Part], Tensor]] = {}

    def hooked(self) -> ExitStack:
        stack = ExitStack()
        for at, block in enumerate(self._blocks[: max(self._layers)]):
            for name in ("out", "behind"):
                part: nn.Module | None = getattr(block, name)
                if part is not None:
                    stack.enter_context(part.register_forward_hook(partial(self._keep, (at, name))))
        for layer in self._layers:
            entered, attention = partial(self._entered, layer), self._model.hooks.attentions[layer]
            stack.enter_context(attention.register_forward_pre_hook(entered, with_kwargs=True))
        return stack

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

    def reading(self, layer: int) -> Reading:
        stream, block, x = self._streams[layer], self._blocks[layer], self._inputs[layer]
        norm = _Norm.of(block.norm, stream.new_zeros(1, 1, stream.shape[-1]))
        linear = norm.linear(stream)
        scale = _own_scale(x - norm.bias, linear)
        if not _equal(linear * scale[..., None] + norm.bias, x):
            raise _refused(self._model, layer, "the norm before attention is unknown")
        attention, given = self._model.hooks.attentions[layer], self._given[layer][1]
        rotation = _rotation(attention, layer, x.to(self._there), given)
        rotation = None if rotation is None else rotation.to(stream.device)
        # queries and keys of the unit vectors: with norms linear, their bias, zero
        unit = torch.eye(stream.shape[-1], device=self._there)
        probed = [
            _probe(attention, layer, unit, self._given[layer], norms).to(self._model.hooks.home)
            for norms in ("linear", "bias", "zero")
        ]
        query, key = (
            self._side(layer, name, norm, [getattr(each, name)[0] for each in probed], rotation)
            for name in ("q", "k")
        )
        parts = tuple(self._parts(layer))
        return Reading(layer, parts, scale, query, key, rotation, self._calls[layer])

    def _side(
        self, layer: int, name: str, norm: _Norm, probed: list[Tensor], rotation: Rotation | None
    ) -> Side:
        """Return how queries or keys are made, from those of the zero and the unit vectors."""
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
            why = "queries or keys are no linear map of the normed stream (they may be clipped)"
            raise _refused(self._model, layer, why)
        shared = self._calls[layer].q.shape[1] // real.shape[1]
        constant = norm.bias.view(-1) @ weights + inner[:, 0]
        return Side(matrix, constant, behind, scale, shared)

    def _parts(self, layer: int) -> Iterator[Part]:
        """Yield the components of a layer's stream in the order in which they are written."""
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
        """Return a layer's heads, the bias of its attention output, and both together."""
        z, out = self._kept[layer, "out"]
        weight, bias = affine(block.out)
        factor, shape = _multiplier(self._model), self._streams[layer].shape
        out, scale, behind = out.reshape(shape), z.new_ones(shape[:2]), weight.new_zeros(1)
        if block.behind is not None:
            norm, plain = _Norm.of(block.behind, out.new_zeros(1, 1, shape[-1])), out
            out = self._kept[layer, "behind"][1]
            scale = _own_scale(out - norm.bias, norm.linear(plain))
            weight, bias, behind = norm.linear(weight)[0], norm.linear(bias), norm.bias
        heads = self._model.geometry.n_heads
        scale = factor * scale[..., None]
        rows = z.reshape(*shape[:2], heads, -1).permute(2, 0, 1, 3) * scale
        names = tuple(head_name(layer, head) for head in range(heads))
        part = Part(names, rows, weight.reshape(heads, -1, shape[-1]))
        return part, scale * bias + factor * behind, factor * out


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
        found = _Norm.of(norm, args[0])
        whole = {"linear": found.linear(args[0]), "bias": found.bias}
        return whole.get(norms, torch.zeros_like(args[0]))

    with ExitStack() as stack:
        for part in module.modules():
            if _is_norm(part):
                stack.enter_context(part.register_forward_hook(replaced))
        return unrotated_call(module, layer, rows[None], *given)
