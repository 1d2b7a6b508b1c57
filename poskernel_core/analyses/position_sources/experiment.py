"""Run texts up to each layer, and split its mean keys into what earlier parts wrote."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.position_sources import formulas, spec
from poskernel_core.analyses.position_sources.formulas import (
    FEWEST,
    NOISY,
    POSITIONAL,
    Gradient,
    Reading,
)
from poskernel_core.common.attention import ScoreRule, repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import first_in_equal_groups, groups_of, kept_windows
from poskernel_core.common.heads import layer_of, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.views import StatisticsView, without
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.components import Reading as Components
from poskernel_core.forward.components import read_components, read_layers
from poskernel_core.forward.observers import Batch, Observer

ROOM = 2**28
"""Most bytes of the components of a batch."""

GRADIENTS = 2**30
"""Most bytes of the gradients of the heads that are computed together, from one pass."""

BIAS = "ALiBi's bias"
NAMES = {
    "embedding": "token embedding",
    "position": "positional embedding",
    "biases": "output biases",
    "constant": "constant",
    BIAS: BIAS,
}
"""The names of components that are neither heads nor MLPs, in the order of a result."""

KIND_OF = {
    "token embedding": "token_share",
    "positional embedding": "wpos_share",
    "output biases": "constant_share",
    "constant": "constant_share",
    BIAS: "bias_share",
}
CERTAINTY = ("noise", "position_share")


@dataclass
class _Layer:
    """What one layer's heads read, by group of texts.

    Attributes:
        rule: how scores are made.
        queries: of every text, ``[head, query, d]``.
        keys: mean keys, ``[kv, key, d]``.
        spread: mean variance of the scores of a row, ``[head]``.
    """

    rule: ScoreRule
    queries: list[list[np.ndarray]]
    keys: np.ndarray
    spread: np.ndarray


class _Texts(Observer):
    """The texts that are read; run once, it keeps queries and mean keys of the wanted layers.

    Attributes:
        recorded: the query positions.
        windows: token ids; text ``t`` belongs to group ``t % groups``.
        kept: which groups there are: all, and all but each one.
        each: number of texts of a group.
        layers: what was seen of each layer.
    """

    def __init__(
        self, subject: ExperimentContext, main: StatisticsView, params: spec.PositionSourcesParams
    ) -> None:
        self.model, self.main, self.skip = subject.model, main, params.skip
        self.windows = first_in_equal_groups(subject.windows, params.first_windows)
        self.groups = groups_of(len(self.windows))
        self.recorded = np.array([n for n in main.header.positions if n >= params.skip])
        if self.groups < FEWEST or not len(self.recorded):
            raise BadRequest(
                f"Expected {FEWEST} windows of text or more, and a query position of "
                f"{params.skip} (the skipped keys) or more: choose more text, or a smaller skip."
            )
        self.each = len(self.windows) // self.groups
        self.kept = [*kept_windows(self.groups, self.groups)]
        self.layers: dict[int, _Layer] = {}
        self._wanted, self._group, self._batch = range(0), 0, subject.batch

    def see(self, layers: range) -> None:
        """Run all texts up to the last of these layers."""
        self._wanted = layers
        for group, tokens in self.batches(layers[-1]):
            self._group = group
            self.model.run(tokens, observers=[self], until=layers[-1])

    def batches(self, layer: int) -> Iterator[tuple[int, Tensor]]:
        """Yield token ids of texts of one group, and the group, for a pass up to a layer."""
        geometry, length = self.model.geometry, self.windows.shape[1]
        numbers = length * (layer + 1) * (geometry.n_heads * geometry.d_head + geometry.d_model)
        size = self._batch or max(1, ROOM // (4 * numbers))
        for group in range(self.groups):
            own = np.ascontiguousarray(self.windows[group :: self.groups])
            for first in range(0, len(own), size):
                yield group, torch.from_numpy(own[first : first + size])

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer not in self._wanted:
            return
        q, k = (tensor.float().cpu().numpy() for tensor in (call.q[:, :, self.recorded], call.k))
        heads, length = q.shape[1], k.shape[2]
        if call.layer not in self.layers:
            keys, spread = (
                np.zeros((self.groups, *k.shape[1:]), np.float32),
                np.zeros((self.groups, heads)),
            )
            self.layers[call.layer] = _Layer(
                call.rule, [[] for _ in range(self.groups)], keys, spread
            )
        layer = self.layers[call.layer]
        layer.queries[self._group] += [*q]
        layer.keys[self._group] += k.sum(axis=0) / self.each
        scores = call.rule.scale * q @ repeat_kv(k, heads, 1).swapaxes(-1, -2)
        if call.slopes is not None:
            scores = scores + call.rule.bias(self.recorded, slice(0, length), scores)
        weights = formulas.equal_weights(call.rule, self.recorded, length, self.skip)
        spread = formulas.variance(scores.astype(np.float64), weights)
        layer.spread[self._group] += spread.mean(axis=-1).sum(axis=0) / self.each

    def reading(self, layer: int, head: int) -> Reading:
        """Return what a head reads."""
        seen = self.layers[layer]
        own = head * seen.keys.shape[1] // len(seen.spread[0])
        queries = np.array([[text[head] for text in texts] for texts in seen.queries])
        return Reading(
            queries.reshape(self.groups, -1, queries.shape[-1]),
            np.tile(self.recorded, self.each),
            seen.keys[:, own],
            seen.rule.of_heads(slice(head, head + 1)),
            self.skip,
        )

    def run_keys(self, layer: int, head: int) -> Iterator[np.ndarray]:
        """Yield the head's mean keys of all windows of the run, then without each group."""
        for place, _ in enumerate(self.kept):
            view = without(self.main, place - 1) if place else self.main
            keys, (_, _, width) = view.layer(layer)["mean_keys"], self.layers[layer].keys.shape[1:]
            heads = self.layers[layer].spread.shape[1]
            yield keys[head * len(keys) // heads, : self.windows.shape[1], :width]

    def gradients(self, layer: int, head: int) -> tuple[Gradient, Gradient]:
        """Return the gradients of a head, keys weighted by the kernel, and equally."""
        reading = self.reading(layer, head)
        kernels = [reading.kernel(reading.products(keys)) for keys in self.run_keys(layer, head)]
        weights = formulas.equal_weights(
            reading.rule, reading.positions, reading.keys.shape[1], self.skip
        )
        equal = np.broadcast_to(weights, kernels[0].shape)
        return (
            formulas.gradient(reading, kernels, self.kept),
            formulas.gradient(reading, [equal], self.kept),
        )

    def certainty(self, layer: int, head: int, kernel: Gradient, equal: Gradient) -> np.ndarray:
        """Return the share of noise, and section 13's share of position, ``[2, kept]``."""
        spread = [self.layers[layer].spread[kept, head].mean() for kept in self.kept]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([kernel.noise, equal.total / spread])


def component_keys(components: Components, head: int) -> Tensor:
    """Return a head's unrotated keys of the components, summed over texts, ``[component, key, d]``.

    The order is that of ``components.names``.
    """
    weight = components.weight("key", head)[..., None]
    rows = [
        components.key.through(part, (part.rows * weight).sum(dim=1), head)
        for part in components.parts
    ]
    if components.has_constant:
        rows.append(components.key.constant(head).sum(dim=0, keepdim=True))
    return torch.cat(rows)


def turned(components: Components, keys: Tensor) -> np.ndarray:
    """Return keys ``[component, key, d]`` after the layer's rotation."""
    return components.turned(keys[:, None])[:, 0].cpu().numpy()


def _shares(
    texts: _Texts, cells: Sequence[tuple[int, int]], progress: Callable[[], None]
) -> Iterator[tuple[tuple[int, int], list[str], np.ndarray, np.ndarray]]:
    """Yield for each head the names of its components, their shares, and how certain they are.

    Shares are ``[weights, kept, component]``; keys are weighted by the kernel, and equally.
    """
    gradients = {cell: texts.gradients(*cell) for cell in cells}
    sums: dict[tuple[int, int], Any] = dict.fromkeys(cells, 0)
    names: dict[int, list[str]] = {}
    layers = sorted({layer for layer, _ in cells})
    for group, tokens in texts.batches(layers[-1]):
        progress()
        for components in read_layers(texts.model, tokens, layers):
            names[components.layer] = [NAMES.get(name, name) for name in components.names]
            heads = [head for layer, head in cells if layer == components.layer]
            for _, some in groupby(heads, components.key.shared.__rfloordiv__):
                sharing = [*some]
                keys = turned(components, component_keys(components, sharing[0])) / texts.each
                for cell in product([components.layer], sharing):
                    own = np.array([gradient.of(group, keys) for gradient in gradients[cell]])
                    sums[cell] = sums[cell] + own
    for cell, pair in gradients.items():
        sources, share = names[cell[0]], sums[cell]
        if texts.layers[cell[0]].rule.slopes is not None:
            bias = np.array([gradient.bias_share for gradient in pair])
            sources, share = [*sources, BIAS], np.concatenate([share, bias[..., None]], axis=-1)
        yield cell, sources, share, texts.certainty(*cell, *pair)


def kind_of(name: str) -> str:
    """Return the value of :data:`spec.KINDS` that a component counts to."""
    return KIND_OF.get(name, "heads_share" if layer_of(name) >= 0 else "mlps_share")


def all_heads(subject: ExperimentContext, params: spec.PositionSourcesParams) -> Result:
    """Run the texts up to each layer; see :class:`spec.PositionSources`."""
    geometry = subject.model.geometry
    layers = geometry.with_heads
    texts = _Texts(subject, subject.main, params)
    texts.see(range(layers[-1] + 1))
    heads = {layer: len(texts.layers[layer].spread[0]) for layer in layers}
    cells = [(layer, head) for layer in layers for head in range(heads[layer])]
    one = 2 * 4 * len(texts.kept) * texts.groups * texts.windows.shape[1] * geometry.d_head
    size = max(1, GRADIENTS // one)
    entries = [
        entry
        for first in range(0, len(cells), size)
        for entry in _shares(
            texts, cells[first : first + size], partial(subject.progress, first, len(cells))
        )
    ]
    names = ordered(name for _, own, _, _ in entries for name in own)
    shape = (2, len(texts.kept), geometry.n_layers, geometry.n_heads, len(names))
    shares, certainty = np.full(shape, np.nan), np.full(shape[:-1], np.nan)
    for cell, own, share, certain in entries:
        shares[:, :, *cell][..., [names.index(name) for name in own]] = share
        certainty[:, :, *cell] = certain
    known = known_where(certainty[:, 0])
    kinds = np.array([kind_of(name) for name in names])
    numbers = []
    for place, _ in enumerate(texts.kept):
        share, equal = shares[:, place]
        values = {"share": share, "equal_share": equal} | {
            kind: np.nansum(share[..., kinds == kind], axis=-1)
            if kind in kinds
            else np.full(known.shape, np.nan)
            for kind in spec.KINDS
        }
        values = {
            name: np.where(known.reshape(*known.shape, *[1] * (array.ndim - 2)), array, np.nan)
            for name, array in values.items()
        }
        numbers.append(values | dict(zip(CERTAINTY, certainty[:, place], strict=True)))
    return spec.PositionSources.estimated(
        subject,
        params,
        numbers,
        texts={"source": names},
        provenance={"first_windows": len(texts.windows)},
    )


def known_where(certainty: np.ndarray) -> np.ndarray:
    """Return where there is a positional score to explain, from noise and share of position."""
    noise, position_share = certainty
    return np.asarray((noise <= NOISY) & (position_share >= POSITIONAL))


def ordered(names: Iterable[str]) -> list[str]:
    """Return the distinct names of components: first those that are neither heads nor MLPs."""
    every = dict.fromkeys(names)
    plain = [name for name in NAMES.values() if name in every]
    return [*plain, *(name for name in every if name not in plain)]


def one_head(subject: ExperimentContext, params: spec.HeadSourcesParams) -> Result:
    """Run the texts up to one head's layer; see :class:`spec.HeadSources`."""
    geometry = subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    if geometry.reason(layer):
        raise BadRequest(f"Layer {layer} has no heads: it is {geometry.reason(layer)}.")
    texts = _Texts(subject, subject.main, params)
    subject.progress(0, 2 * texts.groups)
    texts.see(range(layer, layer + 1))
    reading, gradients = texts.reading(layer, head), texts.gradients(layer, head)
    keys: Any = [0.0] * texts.groups
    shares: Any = np.zeros(3)[:, None, None]
    for group, tokens in texts.batches(layer):
        subject.progress(group, 2 * texts.groups)
        components = read_components(texts.model, tokens, layer)
        unturned = component_keys(components, head) / texts.each
        mean = unturned[:, params.skip :].mean(dim=1, keepdim=True).expand_as(unturned)
        part, constant = turned(components, unturned), turned(components, mean)
        kernel, equal = gradients
        shares = shares + np.array(
            [kernel.of(group, part), equal.of(group, part), kernel.of(group, constant)]
        )
        keys[group] = keys[group] + part
    names = [NAMES.get(name, name) for name in components.names]
    if reading.rule.slopes is not None:
        names.append(BIAS)
        bias = [*(gradient.bias_share for gradient in gradients), np.zeros(len(texts.kept))]
        shares = np.concatenate([shares, np.array(bias)[..., None]], axis=-1)
    certainty = texts.certainty(layer, head, *gradients)
    if not known_where(certainty[:, 0]):
        shares[:] = np.nan
    keys = np.stack(keys)
    effects = formulas.effects(
        reading,
        [*texts.run_keys(layer, head)],
        keys,
        texts.kept,
        lambda done, total: subject.progress(total + done, 2 * total),
    )
    weights = reading.kernel(reading.products(next(texts.run_keys(layer, head))))
    offsets = min(spec.OFFSETS, texts.windows.shape[1])
    scores = formulas.by_offset(reading, weights, keys, texts.kept, offsets)
    order = [names.index(name) for name in ordered(names)]
    numbers = [
        {
            "share": share[order],
            "equal_share": equal[order],
            "turned_share": constant[order],
            "place_share": (share - constant)[order],
            "effect": effects[place, order],
            "score": scores[place][:, order],
            "noise": np.asarray(noise),
            "position_share": np.asarray(position),
        }
        for place, ((share, equal, constant), (noise, position)) in enumerate(
            zip(shares.swapaxes(0, 1), certainty.T, strict=True)
        )
    ]
    return spec.HeadSources.estimated(
        subject,
        params,
        numbers,
        texts={"source": ordered(names)},
        coordinates={"query": texts.recorded, "offset": np.arange(scores.shape[-1])},
        provenance={"first_windows": len(texts.windows)},
    )
