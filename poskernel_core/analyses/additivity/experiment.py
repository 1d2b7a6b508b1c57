"""The same passages at several positions: sums of squares of keys, content similarity."""

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.additivity.spec import Additivity, AdditivityParams
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import groups_of
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import GROUPS, Numbers, of_sums

NOTHING = 1e-9
"""A difference below this share of the sum of squares is rounding error."""

NAMES = ("position_share", "content_share", "interaction_share")


class _Keys(Observer):
    """Sums keys and their inner products, by group of passages.

    A batch holds one passage at all shifts.

    ``mean [group, kv, pos, shift, d]`` and ``gram [group, kv, shift, shift]`` are sums.
    """

    def __init__(self, first: int) -> None:
        self.mean: dict[int, Tensor] = {}
        self.gram: dict[int, Tensor] = {}
        self._first = first

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        shifts, group = len(batch.tokens), batch.samples.start % GROUPS
        keys = call.k[:, :, self._first :].cpu().double()  # [shift, kv, pos, d] of one passage
        keys = keys.permute(1, 2, 0, 3)
        if call.layer not in self.mean:
            self.mean[call.layer] = torch.zeros(
                GROUPS, *keys.shape, dtype=torch.float64, device="cpu"
            )
            sizes = (GROUPS, keys.shape[0], shifts, shifts)
            self.gram[call.layer] = torch.zeros(sizes, dtype=torch.float64, device="cpu")
        self.mean[call.layer][group] += keys
        self.gram[call.layer][group] += torch.einsum("hjsd,hjrd->hsr", keys, keys)


def shift_places(context: int, first: int, length: int, shifts: int) -> np.ndarray:
    """Return a passage's start positions: evenly spaced, from just after the start token."""
    step = (context - first - length) // (shifts - 1)
    return first + step * np.arange(shifts)


def additivity(subject: ExperimentContext, params: AdditivityParams) -> Result:
    """Run every passage at every place; see :class:`spec.Additivity`."""
    first, length = int(subject.start_token), params.passage_length
    texts, context = subject.windows[:, : first + length], subject.windows.shape[1]
    if texts.shape[1] < first + length or len(texts) < 2:
        raise BadRequest(f"Expected two texts of {length} tokens or more: choose more text.")
    places = shift_places(context, first, length, params.shifts)
    positions = np.concatenate(
        [np.zeros((params.shifts, first), int), places[:, None] + np.arange(length)], axis=1
    )
    keys = _Keys(first)
    for some, text in subject.batches(texts):
        subject.model.run(
            text.expand(params.shifts, -1),
            observers=[keys],
            samples=some,
            positions=torch.from_numpy(positions),
            until=-1,
        )
    geometry, groups = subject.model.geometry, groups_of(len(texts))
    count = np.bincount(np.arange(len(texts)) % groups).astype(np.float64)

    def numbers(size: float, *sums: np.ndarray) -> Numbers:
        layers = []
        for mean, gram in zip(sums[::2], sums[1::2], strict=True):
            values = dict(zip(NAMES, shares(mean, gram, size), strict=True))
            layers.append(values | {"content_similarity": cosines(mean, gram, size)})
        return {
            name: np.stack([repeat_kv(layer[name], geometry.n_heads) for layer in layers])
            for name in layers[0]
        }

    parts = (part[layer] for layer in sorted(keys.mean) for part in (keys.mean, keys.gram))
    return Additivity.estimated(
        subject,
        params,
        of_sums(numbers, count, *(part[:groups].numpy() for part in parts)),
        coordinates={"shift": places - places[0]},
        provenance={"passages": len(texts)},
    )


def shares(
    mean: np.ndarray, gram: np.ndarray, count: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shares of position, content and the rest in the variance, ``[kv]`` each.

    ``mean [kv, pos, shift, d]`` is the sum of keys over passages, ``gram [kv, shift, shift]`` the
    sum of their inner products (over passages, tokens and dimensions).
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
    """Return the mean cosine of the contents at places 0, 1, ... shifts apart, ``[kv, shift]``."""
    centred = gram - np.einsum("hjsd,hjrd->hsr", mean, mean) / count
    squares = np.einsum("hss->hs", centred)
    there = squares > NOTHING * np.einsum("hss->hs", gram)  # otherwise there is no content
    size = np.sqrt(np.where(there, squares, np.nan))
    cosine = centred / (size[:, :, None] * size[:, None, :])
    shifts = gram.shape[-1]
    diagonals = [np.diagonal(cosine, k, axis1=1, axis2=2).mean(axis=-1) for k in range(shifts)]
    return np.stack(diagonals, axis=-1)
