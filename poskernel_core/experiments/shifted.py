"""The same passages at several positions: sums of squares of keys, and the drift of content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.attention import AttentionCall
from poskernel_core.errors import BadRequest
from poskernel_core.experiments.moments import GROUPS, jackknife
from poskernel_core.tapping import Onlooker

if TYPE_CHECKING:
    from poskernel_core.analyses.additivity import AdditivityParams

__all__ = ["additivity", "cosines", "shares", "shift_places"]

NOTHING = 1e-9
"""Share of the sum of squares below which a difference is rounding."""

NAMES = ("position_share", "content_share", "rest_share")


class _Keys(Onlooker):
    """A watcher that adds up keys and their inner products, by group of passages.

    ``mean [group, kv, pos, shift, d]`` and ``gram [group, kv, shift, shift]`` are sums.
    """

    def __init__(self, first: int) -> None:
        self.shifts, self.group = 1, 0
        self.count = np.zeros(GROUPS)
        self.mean: dict[int, Tensor] = {}
        self.gram: dict[int, Tensor] = {}
        self._first = first

    def attention(self, call: AttentionCall) -> bool:
        keys = call.k[:, :, self._first :].cpu().double()  # [shift, kv, pos, d] of one passage
        keys = keys.permute(1, 2, 0, 3)
        if call.layer not in self.mean:
            self.mean[call.layer] = torch.zeros(GROUPS, *keys.shape, dtype=torch.float64)
            sizes = (GROUPS, keys.shape[0], self.shifts, self.shifts)
            self.gram[call.layer] = torch.zeros(sizes, dtype=torch.float64)
        self.mean[call.layer][self.group] += keys
        self.gram[call.layer][self.group] += torch.einsum("hjsd,hjrd->hsr", keys, keys)
        return False


def shift_places(context: int, first: int, length: int, shifts: int) -> np.ndarray:
    """Return where the passage begins, evenly spaced from behind the start token on."""
    step = (context - first - length) // (shifts - 1)
    return first + step * np.arange(shifts)


def additivity(subject: Subject, params: AdditivityParams, progress: Progress) -> Result:
    """Run every passage at every place; see :class:`~poskernel_core.analyses.Additivity`.

    Raises:
        BadRequest: a text shorter than the passages.
    """
    first, length = int(subject.start_token), params.passage_length
    texts, context = subject.windows[:, : first + length], subject.windows.shape[1]
    if texts.shape[1] < first + length or len(texts) < 2:
        raise BadRequest(f"Expected two texts of {length} tokens or more: choose more text.")
    places = shift_places(context, first, length, params.shifts)
    positions = np.concatenate(
        [np.zeros((params.shifts, first), int), places[:, None] + np.arange(length)], axis=1
    )
    keys = _Keys(first)
    keys.shifts = params.shifts
    for number, text in enumerate(texts):
        progress(number, len(texts))
        keys.group = number % GROUPS
        keys.count[keys.group] += 1
        tokens = torch.from_numpy(np.tile(text, (params.shifts, 1)))
        subject.model.watch(tokens, keys, torch.from_numpy(positions))
    return _result(subject, params, keys, places - places[0])


def _result(subject: Subject, params: AdditivityParams, keys: _Keys, shifts: np.ndarray) -> Result:
    geometry = subject.model.geometry
    groups = geometry.n_heads // geometry.n_kv_heads
    values: dict[str, list[np.ndarray]] = {}
    errors: dict[str, list[np.ndarray]] = {}
    there = np.flatnonzero(keys.count)
    for layer in range(geometry.n_layers):
        mean, gram = keys.mean[layer].numpy(), keys.gram[layer].numpy()
        whole = _numbers(mean.sum(0), gram.sum(0), keys.count.sum())
        out = [
            _numbers(mean.sum(0) - mean[g], gram.sum(0) - gram[g], keys.count.sum() - keys.count[g])
            for g in there
        ]
        for name, array in whole.items():
            spread = jackknife(np.stack([each[name] for each in out]))
            values.setdefault(name, []).append(array.repeat(groups, axis=0))
            errors.setdefault(name, []).append(spread.repeat(groups, axis=0))
    axes: dict[str, tuple[str, ...]] = dict.fromkeys(NAMES, ("layer", "head"))
    return Result(
        analysis="additivity",
        params=params.model_dump(),
        values={name: np.stack(rows) for name, rows in values.items()},
        errors={name: np.stack(rows) for name, rows in errors.items()},
        axes=axes | {"content_cosine": ("layer", "head", "shift")},
        units=dict.fromkeys(NAMES, "share of variance") | {"content_cosine": "cosine"},
        coordinates={"shift": shifts},
        provenance={"passages": int(keys.count.sum())},
    )


def _numbers(mean: np.ndarray, gram: np.ndarray, count: float) -> dict[str, np.ndarray]:
    """Return all values of a layer from sums over so many passages, ``[kv, ...]``."""
    found = dict(zip(NAMES, shares(mean, gram, count), strict=True))
    return found | {"content_cosine": cosines(mean, gram, count)}


def shares(
    mean: np.ndarray, gram: np.ndarray, count: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shares of position, content and the rest in the variance, ``[kv]`` each.

    ``mean [kv, pos, shift, d]`` is the sum of keys over passages, ``gram [kv, shift, shift]`` that
    of their inner products (over passages, tokens and dimensions).
    """
    shifts = gram.shape[-1]
    grand = (mean.mean(axis=2) ** 2).sum(axis=(1, 2)) * shifts / count
    squares = np.trace(gram, axis1=1, axis2=2)
    total = squares - grand
    total = np.where(total > NOTHING * squares, total, np.nan)  # constant keys have no variance
    position = (mean**2).sum(axis=(1, 2, 3)) / count - grand
    content = gram.sum(axis=(1, 2)) / shifts - grand
    return position / total, content / total, 1 - (position + content) / total


def cosines(mean: np.ndarray, gram: np.ndarray, count: float) -> np.ndarray:
    """Return the cosine between contents so many shifts apart, ``[kv, shift]``; 1 for none."""
    centred = gram - np.einsum("hjsd,hjrd->hsr", mean, mean) / count
    squares = np.einsum("hss->hs", centred)
    there = squares > NOTHING * np.einsum("hss->hs", gram)  # else content has no direction
    size = np.sqrt(np.where(there, squares, np.nan))
    cosine = centred / (size[:, :, None] * size[:, None, :])
    shifts = gram.shape[-1]
    diagonals = [np.diagonal(cosine, k, axis1=1, axis2=2).mean(axis=-1) for k in range(shifts)]
    return np.stack(diagonals, axis=-1)
