"""Slopes on log axes, and kernels by offset from queries at several positions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from poskernel_core.analyses.kernels.formulas import kernel_rows
from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.groups import groups_of

QUERIES = 8
"""Query positions at the end of every context."""

MIN_POINTS = 3
"""Fewest query positions that a slope is fitted to."""


def log_spaced(positions: Int[np.ndarray, " query"], points: int) -> Int[np.ndarray, " point"]:
    """Return the positions nearest to ``points`` evenly spaced ones on a log axis, ascending."""
    wanted = np.geomspace(positions[0], positions[-1], points)
    near = np.abs(np.log(wanted[:, None] / positions)).argmin(axis=1)
    return np.asarray(positions[np.unique(near)])


def slopes(
    x: Float[np.ndarray, " point"], y: Float[np.ndarray, "head point"]
) -> Float[np.ndarray, " head"]:
    """Return the least-squares slope of every row; NaN if ``x`` is constant or too short."""
    away = x - x.mean()
    squares = away @ away
    if len(x) < MIN_POINTS or squares < 1e-12:
        return np.full(len(y), np.nan)
    return np.asarray(y @ away / squares)


def offset_kernel(
    queries: Float[np.ndarray, "head text query d"],
    mean_keys: Float[np.ndarray, "kv key d"],
    positions: Int[np.ndarray, " query"],
    first: int,
    offsets: int,
    rule: ScoreRule,
) -> Float[np.ndarray, "head offset"]:
    """Return the mean kernel over the offsets ``0 .. offsets - 1``, over texts and queries.

    ``mean_keys`` begin at position ``first``. Each kernel is normalised over these offsets; hidden
    keys have 0.
    """
    kernel = np.zeros((len(queries), offsets))
    for place, n in enumerate(positions.tolist()):
        low = max(rule.first_visible(n), n - offsets + 1)
        keys = mean_keys[:, low - first : n - first + 1]
        rows = kernel_rows(queries[:, :, place], keys, rule, low).mean(axis=1)
        kernel[:, : n - low + 1] += rows[:, ::-1]
    return kernel / len(positions)


@dataclass(frozen=True, eq=False)
class Ends:
    """What is read at the end of every context, whatever its length.

    Attributes:
        back: how far each query lies before the last position, ``[query]``, descending.
        offsets: number of offsets that all these queries see in the shortest context.
        span: number of keys needed, up to the last position.
    """

    back: Int[np.ndarray, " query"]
    offsets: int
    span: int


def ends_of(length: int, skip: int) -> Ends:
    """Return the ends of contexts of which the shortest has ``length`` tokens."""
    quarter = length // 4
    back = np.unique(np.linspace(0, quarter - 1, QUERIES).round().astype(np.int64))[::-1]
    return Ends(back, length - quarter - skip + 1, length - skip)


def long_texts(windows: Int[np.ndarray, "text pos"], first: int, most: int) -> np.ndarray:
    """Join up to ``most`` consecutive windows of each group to texts; a power of two of them.

    The ``first`` tokens of a window, its start token, are kept once. Text ``t`` of the texts
    ``[text, pos]`` belongs to group ``t % groups``.
    """
    groups = groups_of(len(windows))
    rows = windows.reshape(-1, groups, windows.shape[1])
    joined = min(most, 2 ** int(np.log2(len(rows))))
    texts = rows[: len(rows) // joined * joined].reshape(-1, joined, *rows.shape[1:])
    body = texts[..., first:].transpose(0, 2, 1, 3).reshape(len(texts) * groups, -1)
    return np.hstack([texts[:, 0, :, :first].reshape(len(body), first), body])


def in_parts(loss: Float[np.ndarray, "text pos"], lengths: int, parts: int) -> np.ndarray:
    """Return the means ``[text, part]`` over ``parts`` parts of each of ``lengths`` lengths."""
    pieces = np.array_split(loss.reshape(len(loss), lengths, -1), parts, axis=2)
    return np.stack([np.nanmean(part, axis=2) for part in pieces], axis=2).reshape(len(loss), -1)
