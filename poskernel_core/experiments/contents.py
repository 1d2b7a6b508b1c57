"""Content weights and softmax denominators of a fixed destination token in many contexts."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Subject
from poskernel_core.attention import AttentionCall, PatternBlock
from poskernel_core.errors import BadRequest
from poskernel_core.views import StatisticsView

__all__ = ["Row", "destination_windows", "token_id", "watch_rows"]

MOST_BATCH = 32
KEYS = 2**15


@dataclass(frozen=True)
class Row:
    """One layer's last query in a batch of texts, in float64.

    Attributes:
        layer: number of the layer.
        first: first key that counts: ``skip``, or the beginning of a sliding window.
        kernel: ``K(n, .)`` over the keys from ``first`` on, ``[text, head, key]``; sums to 1.
        log_weight: content scores ``c(n, .)``, whose exponentials are the content weights.
    """

    layer: int
    first: int
    kernel: Tensor
    log_weight: Tensor

    @property
    def denominator(self) -> Tensor:
        """``Z_n = sum_j K(n,j) exp(c(n,j))``, ``[text, head]``."""
        return torch.logsumexp(self.kernel.log() + self.log_weight, dim=-1).exp()


def token_id(subject: Subject, text: str) -> int:
    """Return the id of a text that is one token.

    Raises:
        BadRequest: it is none, or the model has no tokenizer.
    """
    if subject.single_id is None:
        raise BadRequest("A fixed token needs a tokenizer, and the model has none.")
    return subject.single_id(text)


def destination_windows(windows: np.ndarray, query: int, token: int) -> np.ndarray:
    """Return the windows up to position ``query``, which holds the destination token."""
    cut = windows[:, : query + 1].copy()
    cut[:, query] = token
    return cut


def watch_rows(
    subject: Subject,
    main: StatisticsView,
    windows: np.ndarray,
    skip: int,
    layers: Container[int] | None = None,
) -> Iterator[tuple[range, list[Row]]]:
    """Yield the numbers of some texts at a time, and the row of their last query in every layer.

    ``main`` holds the mean keys of the model's pass; ``layers`` are those wanted (default: all).
    """
    size = subject.batch or max(1, min(MOST_BATCH, KEYS // windows.shape[1]))
    for first in range(0, len(windows), size):
        some = range(first, min(first + size, len(windows)))
        watcher = _LastQuery(main, skip, layers)
        tokens = torch.from_numpy(np.ascontiguousarray(windows[some.start : some.stop]))
        subject.model.watch(tokens, watcher)
        yield some, watcher.rows


class _LastQuery:
    """A watcher that splits the last query's scores into position and content."""

    def __init__(self, main: StatisticsView, skip: int, layers: Container[int] | None) -> None:
        self.rows: list[Row] = []
        self._main, self._skip, self._layers = main, skip, layers

    def attention(self, call: AttentionCall) -> bool:
        if self._layers is not None and call.layer not in self._layers:
            return False
        length = call.q.shape[2]
        window = call.window if call.window is not None and call.window < length else None
        first = self._skip if window is None else max(self._skip, length - window)
        groups = call.q.shape[1] // call.k.shape[1]
        mean = torch.from_numpy(self._main.layer(call.layer)["mean_keys"][:, first:length])
        query = call.q[:, :, -1].cpu().double() * call.scale
        keys = call.k[:, :, first:].cpu().double().repeat_interleave(groups, dim=1)
        score = (keys @ query[..., None])[..., 0]
        position = torch.einsum(
            "thd,hkd->thk", query, mean.double().repeat_interleave(groups, dim=0)
        )
        kernel = torch.softmax(position, dim=-1)
        self.rows.append(Row(call.layer, first, kernel, score - position))
        return False

    def pattern(self, block: PatternBlock) -> None: ...

    def positions(self, x: Tensor) -> None: ...

    def residual(self, layer: int, x: Tensor) -> None: ...

    def normed(self, layer: int, x: Tensor) -> None: ...
