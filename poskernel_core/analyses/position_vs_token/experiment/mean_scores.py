"""Position without content in rotary models: scores of mean queries and mean keys."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.attention import ScoreRule, repeat_kv
from poskernel_core.common.jackknife import jackknife
from poskernel_core.forward.attention import AttentionCall, hidden_keys
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Groups, Numbers, replicated

MEANS = ("score", "pattern", "profile", "first_mass")


def patterns_and_parts(pattern: Tensor) -> dict[str, Tensor]:
    """Return patterns ``[..., query, key]`` and values derived from them, by name.

    ``profile [..., offset]`` is the mean of each diagonal, position 0 left out as query and key;
    ``first_mass`` is the attention from position 1 to position 0.
    """
    length = pattern.shape[-1]
    diagonals = [pattern.diagonal(-k, dim1=-2, dim2=-1)[..., 1:].mean(-1) for k in range(length)]
    return {
        "pattern": pattern,
        "profile": torch.stack(diagonals, dim=-1),
        "first_mass": pattern[..., 1, 0],
    }


def mean_scores(
    subject: ExperimentContext,
    batches: Iterator[tuple[range, Tensor]],
    count: Callable[[int], None],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return scores of mean queries and mean keys, with their softmax and values derived from it.

    All are ``[layer, head, ...]``, each a pair of value and jackknife standard error over ten
    groups of sequences.
    """
    means = _MeanQueriesAndKeys()
    for some, tokens in batches:
        subject.model.run(tokens, observers=[means], samples=some, until=-1)
        count(len(some))
    layers = [means.layer(layer) for layer in range(subject.model.geometry.n_layers)]
    return {
        name: (
            np.stack([whole[name] for whole, _ in layers]),
            np.stack([jackknife(np.stack([x[name] for x in without])) for _, without in layers]),
        )
        for name in MEANS
    }


class _MeanQueriesAndKeys(Observer):
    """Sums queries and keys by group of samples."""

    def __init__(self) -> None:
        self._queries: dict[int, Groups] = {}
        self._keys: dict[int, Groups] = {}
        self._calls: dict[int, ScoreRule] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self._calls[call.layer] = call.rule
        self._queries.setdefault(call.layer, Groups()).add(call.q, batch.samples)
        self._keys.setdefault(call.layer, Groups()).add(call.k, batch.samples)

    def layer(self, layer: int) -> tuple[Numbers, list[Numbers]]:
        """Return a layer's numbers ``[head, ...]``, and its leave-one-group-out replicates."""
        numbers = partial(self._numbers, self._calls[layer])
        return replicated(numbers, self._queries[layer], self._keys[layer])

    @staticmethod
    def _numbers(rule: ScoreRule, q: np.ndarray, k: np.ndarray) -> Numbers:
        all_of_it = slice(0, q.shape[1])
        keys = repeat_kv(torch.from_numpy(k), len(q))
        scores = rule.capped(rule.scale * torch.from_numpy(q) @ keys.transpose(-1, -2))
        if rule.slopes is not None:
            scores = scores + rule.bias(all_of_it, all_of_it, scores)
        hidden = hidden_keys(q.shape[1], rule.window, scores.device, rule.chunk)
        pattern = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
        parts = {"score": scores.masked_fill(hidden, torch.nan), **patterns_and_parts(pattern)}
        return {name: part.numpy() for name, part in parts.items()}
