"""Run texts and split their scores into position and content, row by row."""

import numpy as np
import torch

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.score_shares.spec import ScoreShares, ShareParams
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.differences import each_group
from poskernel_core.common.groups import first_in_equal_groups, groups_of, kept_windows
from poskernel_core.common.result import Result
from poskernel_core.common.views import StatisticsView
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Numbers

CELLS = 2**22
"""Most scores of one layer in a batch."""

FEWEST = 4
"""Fewest groups for products of different groups: three remain when one is left out."""


class _Products(Observer):
    """Sums the variances and covariances that the shares are computed from.

    ``sums [part, layer, kept, head, query]`` has three parts: the variance of the score by
    position, that score's covariance with the whole score, and the variance of the whole score.
    ``kept`` is first all windows, then all without each group.
    """

    def __init__(self, main: StatisticsView, heads: int, texts: int, skip: int) -> None:
        header, groups = main.header, groups_of(texts)
        sizes = (3, header.n_layers, 1 + groups, heads, len(header.positions))
        self.sums = np.zeros(sizes)
        self._main, self._positions, self._skip = main, header.positions, skip
        arrays = weights(max(1, header.groups), groups)
        self._pairs, self._alone, self._kept = (torch.from_numpy(array) for array in arrays)

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        heads, width, length = call.q.shape[1], call.q.shape[-1], max(self._positions) + 1
        rule, keys = call.rule, torch.arange(length, device="cpu")
        queries = call.q[:, :, list(self._positions)].cpu().double()
        means = each_group(self._main.layer(call.layer), "mean_keys")[:, :, :length, :width]
        means = repeat_kv(torch.from_numpy(means).double(), heads, 1)
        own = repeat_kv(call.k[:, :, :length].cpu().double(), heads, 1)
        places = torch.tensor(self._positions, device="cpu")[:, None]
        hidden = rule.is_hidden(places, keys) | (keys < self._skip)
        score, position = (
            rule.scores(products, self._positions, keys).masked_fill_(hidden, 0)
            for products in (queries @ own.mT, torch.einsum("thnd,ghkd->gthnk", queries, means))
        )
        position, score = position.movedim(0, -2), score[..., None]
        total, count = position.sum(dim=-1)[..., None], (~hidden).sum(dim=-1).clamp(min=1)
        count = count[:, None, None]
        pairs = position @ position.mT - total @ total.mT / count
        alone = (position @ score - total * score.sum(dim=-2, keepdim=True) / count)[..., 0]
        squares = (score**2).sum(dim=(-2, -1)) - score.sum(dim=(-2, -1)) ** 2 / count[:, 0, 0]
        group = [sample % len(self._kept) for sample in batch.samples]
        sums = (
            torch.einsum("tvgf,thngf->vhn", self._pairs[group], pairs),
            torch.einsum("tvg,thng->vhn", self._alone[group], alone),
            torch.einsum("tv,thn->vhn", self._kept[group], squares),
        )
        self.sums[:, call.layer] += torch.stack(sums).numpy()


def weights(groups: int, read: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights of windows and products, with all groups and without each group.

    There are ``groups`` groups of mean keys and ``read`` groups of windows. Products of two mean
    keys have weights ``[group of the window, kept, group, group]``, products of a mean key with the
    score ``[group of the window, kept, group]``, windows ``[group of the window, kept]``. With four
    or more groups, only products of different groups count; otherwise all count equally.
    """
    there = np.ones((1 + read, groups))
    if groups > 1:
        there[1 + np.arange(read), np.arange(read)] = 0
    kept = kept_windows(read, read).T.astype(float)
    apart = groups >= FEWEST
    alone = there * (1 - apart * np.eye(read, groups)[:, None])
    pairs = alone[..., None] * alone[..., None, :] * (1 - apart * np.eye(groups))
    pairs *= kept[..., None, None] / np.maximum(pairs.sum(axis=(-2, -1), keepdims=True), 1)
    alone *= kept[..., None] / np.maximum(alone.sum(axis=-1, keepdims=True), 1)
    return pairs, alone, kept


def shares(position: np.ndarray, common: np.ndarray, score: np.ndarray) -> Numbers:
    """Return the shares from the three parts of the sums, in the order of ``_Products.sums``.

    NaN where all scores are equal.
    """
    content, covariance = score - 2 * common + position, 2 * (common - position)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "position_share": position / score,
            "content_share": content / score,
            "covariance_share": covariance / score,
        }


def score_shares(subject: ExperimentContext, params: ShareParams) -> Result:
    """Run the texts; see :class:`~poskernel_core.analyses.score_shares.spec.ScoreShares`."""
    main, geometry = subject.main, subject.model.geometry
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    seen = _Products(main, geometry.n_heads, len(texts), params.skip)
    places = main.header.groups * len(main.header.positions)
    widest = max(geometry.d_head, places)
    size = max(1, CELLS // (texts.shape[1] * geometry.n_heads * widest))
    for some, tokens in subject.batches(texts, size):
        subject.model.run(tokens, observers=[seen], samples=some, until=-1)
    return ScoreShares.estimated(
        subject,
        params,
        (shares(*sums) for sums in np.moveaxis(seen.sums, 2, 0)),
        coordinates={"query": np.array(main.header.positions)},
        provenance={"first_windows": len(texts)},
    )
