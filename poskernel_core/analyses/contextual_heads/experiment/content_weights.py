"""Content scores of tokens in layer 0, whose keys depend only on token and position.

Every token is run alone at a few positions, so no text is needed.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.views import StatisticsView
from poskernel_core.forward.attention import AttentionCall, hidden_keys
from poskernel_core.forward.observers import Batch, Observer

QUANTILES = (0.125, 0.375, 0.625, 0.875)
ROWS = 4096
"""Tokens run at a time."""


class _QueriesAndKeys(Observer):
    """Keeps the queries and the keys of layer 0, in float64."""

    def __init__(self) -> None:
        self.queries = self.keys = torch.zeros(0, device="cpu")

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer == 0:
            self.queries = call.q.cpu().double()
            self.keys = call.k.cpu().double()


def destination_queries(subject: ExperimentContext, token: int) -> Float[Tensor, "head query d"]:
    """Return the queries of the destination token at every position, in layer 0."""
    tokens = torch.full((1, subject.windows.shape[1]), token, device="cpu")
    tokens[:, : int(subject.start_token)] = int(subject.windows[0, 0])
    seen = _QueriesAndKeys()
    subject.model.run(tokens, observers=[seen], until=0)
    return seen.queries[0]


def destination_kernels(
    queries: Float[Tensor, "head query d"], main: StatisticsView
) -> Float[Tensor, "head query key"]:
    """Return the kernels ``K(n,i)`` of queries in layer 0, nothing skipped."""
    length, rule = queries.shape[1], main.header.rule(0)
    mean = _mean_keys(main, queries)[:, :length]
    hidden = hidden_keys(length, rule.window, mean.device, rule.chunk)
    scores = rule.scores(queries @ mean.transpose(1, 2), slice(0, length), slice(0, length))
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)


def quantiles(kernels: Float[Tensor, "head key"], start: int) -> list[int]:
    """Return a few key positions that represent equal shares of the heads' mean kernel."""
    mass = torch.cumsum(kernels.mean(dim=0)[start:], dim=0)
    shares = torch.tensor(QUANTILES, dtype=mass.dtype, device="cpu") * mass[-1]
    return (torch.searchsorted(mass, shares).clamp(max=len(mass) - 1) + start).tolist()


def content_scores(
    subject: ExperimentContext, query: Float[Tensor, "head d"], places: list[int]
) -> Float[Tensor, "place head vocab"]:
    """Return the content score ``c`` of every token at some key positions, for each head's query.

    ALiBi's bias is the same for all tokens, so it is no part of content.
    """
    geometry, rule = subject.model.geometry, subject.main.header.rule(0)
    scores = torch.zeros(
        len(places), geometry.n_heads, geometry.n_vocab, dtype=torch.float64, device="cpu"
    )
    for row, place in zip(scores, places, strict=True):
        for ids in torch.arange(geometry.n_vocab, device="cpu").split(ROWS):
            seen, tokens = _QueriesAndKeys(), ids[:, None]
            at = torch.full_like(tokens, place)
            subject.model.run(tokens, observers=[seen], positions=at, until=0)
            keys = repeat_kv(seen.keys[:, :, 0], len(query), 1)
            products = torch.einsum("hd,thd->ht", query, keys)
            row[:, ids] = rule.capped(rule.scale * products)
    return scores - mean_key_scores(subject.main, query, places)[..., None]


def mean_key_scores(
    main: StatisticsView, query: Float[Tensor, "head d"], places: list[int]
) -> Float[Tensor, "place head"]:
    """Return the scores of layer 0's mean keys at some positions, for each head's query."""
    rule, mean = main.header.rule(0), _mean_keys(main, query)[:, places]
    scores: Tensor = rule.capped(rule.scale * torch.einsum("hd,hpd->ph", query, mean))
    return scores


def _mean_keys(main: StatisticsView, queries: Tensor) -> Float[Tensor, "head key d"]:
    """Return the mean keys of layer 0, repeated for the heads of ``queries [head, ..., d]``."""
    mean = torch.tensor(main.layer(0)["mean_keys"], dtype=torch.float64, device="cpu")
    repeated: Tensor = repeat_kv(mean, len(queries))[..., : queries.shape[-1]]
    return repeated
