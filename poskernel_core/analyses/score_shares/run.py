"""Texts whose scores are split into position and content, row by row."""

from __future__ import annotations

import numpy as np
import torch

from poskernel_core.analyses.base import Progress, Statistics, Subject
from poskernel_core.analyses.score_shares.spec import ScoreShares, ShareParams
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.jackknife import jackknife
from poskernel_core.common.result import Result
from poskernel_core.common.views import StatisticsView
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer

__all__ = ["score_shares", "shares"]

PARTS = ("position_share", "content_share", "covariance_share")
CELLS = 2**21
"""Scores of one layer that are split at a time."""


class _Variances(Observer):
    """Keeps the variance of each row's parts: ``parts [part, layer, head, query, text]``."""

    def __init__(
        self, main: StatisticsView, heads: int, positions: tuple[int, ...], texts: int, skip: int
    ) -> None:
        self.parts = np.zeros((len(PARTS), main.header.n_layers, heads, len(positions), texts))
        self._main, self._positions, self._skip = main, positions, skip

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        heads, width = call.q.shape[1], call.q.shape[-1]
        mean = torch.from_numpy(self._main.layer(call.layer)["mean_keys"].copy()).double()
        mean, keys = repeat_kv(mean, heads), repeat_kv(call.k.cpu().double(), heads, 1)
        for place, n in enumerate(self._positions):
            seen = range(call.rule.first_visible(n, self._skip), n + 1)
            query = call.q[:, :, n, :, None].cpu().double()
            score, position = (
                call.rule.scores((each @ query).swapaxes(-1, -2), [n], seen)[:, :, 0]
                for each in (
                    keys[:, :, seen.start : seen.stop],
                    mean[:, seen.start : seen.stop, :width],
                )
            )
            a, c = (_centred(x) for x in (position, score - position))
            found = [(x * y).sum(dim=-1).numpy() for x, y in ((a, a), (c, c), (a, 2 * c))]
            rows = slice(batch.samples.start, batch.samples.stop)
            self.parts[:, call.layer, :, place, rows] = np.stack(found).swapaxes(1, 2)


def _centred(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(dim=-1, keepdim=True) if x.shape[-1] else x


def shares(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares ``[part, ...]`` and their jackknife errors of ``parts [part, ..., text]``.

    NaN where no text has scores that differ.
    """
    total = parts.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = parts.sum(axis=-1) / total.sum(axis=-1)
        left = (parts.sum(axis=-1, keepdims=True) - parts) / (
            total.sum(axis=-1, keepdims=True) - total
        )
        return whole, jackknife(left, axis=-1)


def score_shares(
    subject: Subject, statistics: Statistics, params: ShareParams, progress: Progress
) -> Result:
    """Run the texts; see :class:`~poskernel_core.analyses.score_shares.spec.ScoreShares`."""
    main = statistics["main"]
    geometry, positions = subject.model.geometry, main.header.positions
    texts = subject.windows[: params.first_windows]
    seen = _Variances(main, geometry.n_heads, positions, len(texts), params.skip)
    size = subject.batch or max(1, CELLS // (texts.shape[1] * geometry.n_heads * geometry.d_head))
    for first in range(0, len(texts), size):
        progress(first, len(texts))
        some = range(first, min(first + size, len(texts)))
        tokens = torch.from_numpy(np.ascontiguousarray(texts[some.start : some.stop]))
        subject.model.run(tokens, observers=[seen], samples=some, until=-1)
    progress(len(texts), len(texts))
    found, errors = shares(seen.parts)
    return ScoreShares.result(
        params,
        dict(zip(PARTS, found, strict=True)),
        dict(zip(PARTS, errors, strict=True)),
        coordinates={"query": np.array(positions)},
        provenance={"first_windows": len(texts)},
    )
