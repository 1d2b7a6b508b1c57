"""Attention to an earlier duplicate of the current token, by distance."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.attention import repeat_kv
from poskernel_core.forward.attention import AttentionCall, hidden_keys, softmax_with_sinks
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Moments

STREAM = 2_000_000
STEP = 3
NEAR = 10
BATCH = 8


def copy_distances(query: int, start: int, tokens: int) -> np.ndarray:
    """Return the distances 2, 4, 8, ... of copies that fit before ``query``.

    Queries are 3 positions apart, and each copy lies a power of two before its query. A power of
    two is never a multiple of three, so no copy falls on another query. Each copy is of another
    token of the ``tokens`` to draw from, and one is left for the other positions.
    """
    count = 0
    while count < tokens - 1 and STEP * count + 2 ** (count + 1) <= query - start:
        count += 1
    return 2 ** np.arange(1, count + 1)


def copy_sequences(
    subject: ExperimentContext, query: int, distances: np.ndarray, samples: range
) -> tuple[np.ndarray, np.ndarray]:
    """Return random tokens ``[text, pos]`` with copies, and the same tokens without copies.

    With copies, the token at ``query - 3 k`` also occurs ``distances[k]`` earlier; nowhere else.
    """
    assert subject.source is not None
    pool, start = subject.source.pool, int(subject.start_token)
    later = query - STEP * np.arange(len(distances))
    rows = []
    for sample in samples:
        generator = np.random.default_rng([subject.source.seed, STREAM, sample])
        order = generator.permutation(len(pool))
        looking, rest = order[: len(later)], order[len(later) :]
        row = pool[generator.choice(rest, query + 1)]
        row[later] = pool[looking]
        if start:
            row[0] = subject.source.start
        rows.append(row)
    without = np.array(rows, dtype=np.int64)
    copies = without.copy()
    copies[:, later - distances] = without[:, later]
    return copies, without


def duplicates(
    subject: ExperimentContext,
    query: int,
    samples: int,
    count: Callable[[int], None],
    last: int | None = None,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return means and standard errors over samples.

    They are of ``duplicate_attention`` and ``baseline [layer, head, distance]``, and of the mean
    difference of these two at distances up to 10 (``near_duplicates``) and beyond
    (``far_duplicates``), ``[layer, head]``. Layers after ``last`` are not run.
    """
    assert subject.source is not None
    distances = copy_distances(query, int(subject.start_token), len(subject.source.pool))
    near, until = torch.from_numpy(distances <= NEAR), -1 if last is None else last
    means = {
        name: Moments()
        for name in ("duplicate_attention", "baseline", "near_duplicates", "far_duplicates")
    }
    for first in range(0, samples, BATCH):
        some = range(first, min(first + BATCH, samples))
        rows = []  # [text, layer, head, distance]
        for tokens in map(torch.from_numpy, copy_sequences(subject, query, distances, some)):
            seen = _Places(query, distances)
            subject.model.run(tokens, observers=[seen], samples=some, until=until)
            rows.append(torch.stack(seen.layers, dim=1))
        more = rows[0] - rows[1]
        far = more[..., ~near].mean(dim=-1)
        for mean, tensor in zip(
            means.values(), (*rows, more[..., near].mean(dim=-1), far), strict=True
        ):
            mean.add(tensor)
        count(len(some))
    return {name: (moments.mean, moments.error) for name, moments in means.items()}


class _Places(Observer):
    """Keeps the attention of a few queries to one key each, in every layer."""

    def __init__(self, query: int, distances: np.ndarray) -> None:
        self.layers: list[Tensor] = []
        self._queries = torch.from_numpy(query - STEP * np.arange(len(distances)))
        self._keys = self._queries - torch.from_numpy(distances)

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        heads, length = call.q.shape[1:3]
        keys = repeat_kv(call.k.cpu().double(), heads, 1)
        queries = call.q[:, :, self._queries].cpu().double()
        hidden = hidden_keys(length, call.window, keys.device, call.chunk)[self._queries]
        products = queries @ keys.transpose(-1, -2)
        scores = call.rule.scores(products, self._queries, slice(0, length))
        scores = scores.masked_fill(hidden, -torch.inf)
        places = torch.arange(len(self._keys), device="cpu")
        sinks = None if call.sinks is None else call.sinks.cpu()
        self.layers.append(softmax_with_sinks(scores, sinks)[:, :, places, self._keys])
