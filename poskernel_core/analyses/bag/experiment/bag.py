"""The bag of tokens: what layer 0's contextual heads write, without running the model on a text.

Layer 0 only. ``A(n,i)`` of a contextual head is close to ``K(n,i) w(t_i) / Zmed`` with the kernel
of one destination token, content weights of tokens, and one denominator for all windows.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.experiment import content_weights, contents
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import first_in_equal_groups
from poskernel_core.forward.first_layer import FirstLayer, read_first_layer, see_first_layer

TEXTS = 4


@dataclass(frozen=True)
class Bag:
    """The components of the approximation.

    Attributes:
        layer: the parts of layer 0.
        heads: the contextual heads.
        start: first position after the start token (1, or 0 without one).
        kernels: ``K(n,i)`` of the destination token, ``[head, query, key]``.
        weights: content weight over median denominator, ``w_h(t) / Zmed_h``, ``[head, vocab]``.
        token_scales: the first norm's scale for each token, ``[vocab]``.
        denominators: ``Zmed_h [head]``.
        start_values: the start token's own values ``[head, d]``, exactly.
        scales: true scales of the norms before attention and before the MLP on the windows,
            ``[text, pos]`` each, start tokens left out.
        by: which scale the first norm has in an extended embedding: ``mean`` or ``token``.
    """

    layer: FirstLayer
    heads: tuple[int, ...]
    start: int
    kernels: Float[Tensor, "head query key"]
    weights: Float[Tensor, "head vocab"]
    token_scales: Float[Tensor, " vocab"]
    denominators: Float[Tensor, " head"]
    start_values: Float[Tensor, "head d"]
    scales: tuple[np.ndarray, np.ndarray]
    by: str

    @cached_property
    def common(self) -> Float[Tensor, "query key"]:
        """The mean kernel of the heads, which the bag uses for all of them."""
        return self.kernels.mean(dim=0)

    def scale_of(self, ids: Tensor, by: str) -> Float[Tensor, " token"]:
        """Return the first norm's scale for tokens at positions 0, 1, ....

        ``mean``: one for all; ``token``: each token's own; ``position``: each position's mean.
        """
        if by == "token":
            return self.token_scales[ids]
        if by == "position":
            return by_position(self.scales[0], self.start, len(ids))
        return torch.full(ids.shape, float(self.scales[0].mean()), device="cpu")

    def values(self, ids: Tensor, scale: Tensor) -> Float[Tensor, "head token d"]:
        """Return the weighted values of tokens: ``w_h(t) / Zmed_h * norm(E[t]) W_V^h``."""
        scaled = scale[:, None] * self.layer.embedding[ids]
        return self.weights[:, ids, None] * (scaled @ self.layer.w_v[list(self.heads)])

    def embed(self, ids: Tensor) -> Float[Tensor, "token model"]:
        """Return the extended embeddings ``e(t)`` of tokens."""
        scale = self.scale_of(ids, "token" if self.by == "token" else "mean")
        w_o = self.layer.w_o[list(self.heads)]
        return torch.einsum("htd,hdm->tm", self.values(ids, scale), w_o)

    def table(self, ids: np.ndarray) -> Float[Tensor, "token model"]:
        """Return the extended embeddings of many tokens, a few thousand at a time."""
        return torch.cat(
            [self.embed(some) for some in torch.from_numpy(ids).split(content_weights.ROWS)]
        )

    def readers(self) -> Float[Tensor, "model neuron"]:
        """Return the matrix from extended embeddings to contributions to every neuron.

        It combines the second norm, with its mean scale, and the neurons' input weights.
        """
        norm = self.layer.norm2
        read = float(self.scales[1].mean()) * norm.gain[:, None] * self.layer.w_in
        return read - read.mean(dim=0) if norm.centred else read


def by_position(scales: np.ndarray, start: int, length: int) -> Float[Tensor, " pos"]:
    """Return mean scales at every position; a start token gets the next position's scale."""
    mean = torch.from_numpy(scales.mean(axis=0))
    return torch.cat([mean[:1].expand(start), mean])[:length]


def build_bag(subject: ExperimentContext, heads: tuple[int, ...], params: BagParams) -> Bag:
    """Return the bag of some heads; the latest bag is cached with the model."""
    key = (heads, params.token, params.query, params.first_windows, fingerprint(subject))
    bag: Bag = subject.model.remember("bag", key, lambda: _build(subject, heads, params))
    return bag if bag.by == params.scale else replace(bag, by=params.scale)


def _build(subject: ExperimentContext, heads: tuple[int, ...], params: BagParams) -> Bag:
    layer = read_first_layer(subject.model)
    token = contents.token_id(subject, params.token)
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    start, chosen = int(subject.start_token), list(heads)
    queries = content_weights.destination_queries(subject, token)
    kernels = content_weights.destination_kernels(queries, subject.main)[chosen]
    places = content_weights.quantiles(kernels[:, params.query], start)
    scores = content_weights.content_scores(subject, queries[:, params.query], places)
    log_weight = scores.mean(dim=0)[chosen]
    rows = contents.destination_windows(texts, params.query, token)
    batches = [seen[0].denominator[0] for _, seen in contents.last_rows(subject, rows, 0, (0,))]
    denominators = torch.cat(batches).quantile(0.5, dim=0).float()[chosen]
    scales, first = _scales(subject, layer, texts)
    return Bag(
        layer=layer,
        heads=heads,
        start=start,
        kernels=kernels.float(),
        weights=log_weight.exp().float() / denominators[:, None],
        token_scales=_token_scales(layer, places),
        denominators=denominators,
        start_values=layer.values(first)[chosen],
        scales=scales,
        by=params.scale,
    )


def fingerprint(subject: ExperimentContext) -> tuple[bool, bytes]:
    """Return the cache key of texts and mean keys."""
    data = subject.windows.tobytes() + subject.main.layer(0)["mean_keys"].tobytes()
    return subject.start_token, hashlib.sha256(data).digest()


def listed_tokens(subject: ExperimentContext, fewest: int) -> np.ndarray:
    """Return the ids of ordinary tokens with at least ``fewest`` occurrences, ascending."""
    assert subject.source is not None
    ids = subject.source.pool[contents.token_counts(subject)[subject.source.pool] >= fewest]
    if not len(ids):
        raise BadRequest(
            f"No token occurs {fewest} times in the windows: ask for fewer (0 lists all)."
        )
    return ids


def _token_scales(layer: FirstLayer, places: list[int]) -> Float[Tensor, " vocab"]:
    """Return the first norm's scale of every token, averaged over the places."""
    rows = layer.embedding.split(content_weights.ROWS)
    scales = [torch.cat([layer.norm1.scale(r + layer.positions[n]) for r in rows]) for n in places]
    return torch.stack(scales).mean(dim=0)


def _scales(
    subject: ExperimentContext, layer: FirstLayer, texts: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], Float[Tensor, " model"]]:
    """Return the norms' scales on the windows, and the stream at the first position."""
    start = int(subject.start_token)
    first, second = list[Tensor](), list[Tensor]()
    for _, tokens in subject.batches(texts, TEXTS, total=0):
        seen = see_first_layer(subject.model, tokens)
        first.append(layer.norm1.scale(seen.stream)[:, start:])
        second.append(layer.norm2.scale(seen.between)[:, start:])
    return (torch.cat(first).numpy(), torch.cat(second).numpy()), seen.stream[0, 0]
