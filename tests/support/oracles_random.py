"""Brute-force oracles of the experiments on random tokens, in plain loops.

They share no code with `poskernel_core`: a sequence is a list of token ids, run by `plain_gpt2`,
and what stands where is found in the ids themselves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.support import oracles, plain_gpt2
from tests.support import oracles_positions as op
from tests.support.plain_gpt2 import Edits


@dataclass(frozen=True, repr=False)
class Seen:
    """What one sequence shows: `chances [pos, vocab]` of the next token, and more.

    `patterns`, `scores` (nan in the future), `[layer, head, query, key]`; `squares [head, pos]`,
    squared norms of the outputs `A v` of layer 0.
    """

    chances: np.ndarray
    patterns: np.ndarray
    scores: np.ndarray
    squares: np.ndarray


def see(path: Path, ids: Sequence[int], edits: Edits | None = None) -> Seen:
    """Run one sequence on a GPT-2 and keep what it shows, edits included."""
    edits, scores, squares = edits or Edits(), [], []

    def keep_scores(layer: int, head: int, matrix: np.ndarray) -> np.ndarray:
        changed = edits.scores(layer, head, matrix)
        scores.append(np.where(np.isinf(changed), np.nan, changed))
        return changed

    def keep_squares(layer: int, head: int, rows: np.ndarray) -> np.ndarray:
        changed = edits.head_output(layer, head, rows)
        if layer == 0:
            squares.append([oracles.dot(row, row) for row in changed.tolist()])
        return changed

    run = plain_gpt2.run(path, ids, replace(edits, scores=keep_scores, head_output=keep_squares))
    chances = [oracles.softmax(row) for row in run.logits.tolist()]
    return Seen(
        chances=np.array(chances),
        patterns=run.patterns,
        scores=np.reshape(scores, run.patterns.shape),
        squares=np.array(squares),
    )


def switched(
    cells: Sequence[tuple[int, int]] = (),
    what: str = "output",
    no_positions: bool = False,
    factor: Sequence[Sequence[float]] | None = None,
) -> Edits:
    """What switches do; `factor[head][pos]` scales the outputs of layer 0."""

    def pattern(layer: int, head: int, matrix: np.ndarray) -> np.ndarray:
        if what != "pattern" or (layer, head) not in cells:
            return matrix
        size = len(matrix)
        return np.array([[float(i <= n) / (n + 1) for i in range(size)] for n in range(size)])

    def output(layer: int, head: int, rows: np.ndarray) -> np.ndarray:
        if what == "output" and (layer, head) in cells:
            rows = np.zeros_like(rows)
        if factor is None or layer != 0:
            return rows
        return np.array([row * by for row, by in zip(rows, factor[head], strict=True)])

    positions = np.zeros_like if no_positions else Edits().positions
    return Edits(positions=positions, pattern=pattern, head_output=output)


def mean_and_error(samples: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of numbers or arrays over samples, and its standard error."""
    each = np.array(samples, dtype=float)
    return each.mean(axis=0), each.std(axis=0, ddof=1) / math.sqrt(len(each))


def candidates(ids: Sequence[int]) -> list[int]:
    """Where the tokens stand that follow an earlier copy of the last token."""
    return [i + 1 for i in range(len(ids) - 1) if ids[i] == ids[-1]]


def others(ids: Sequence[int], start: int) -> list[int]:
    """Where neither the start token, nor a copy of the last token, nor a candidate stands."""
    after = candidates(ids)
    return [i for i in range(start, len(ids)) if ids[i] != ids[-1] and i not in after]


def induction_parts(pattern: np.ndarray, start: int, period: int) -> dict[str, float]:
    """A head's attention to what followed the earlier copy, to that copy, to the predecessor."""
    second = range(start + period, start + 2 * period)
    return {
        "induction": oracles.mean([float(pattern[n, n - period + 1]) for n in second]),
        "duplicate": oracles.mean([float(pattern[n, n - period]) for n in second]),
        "previous_mass": oracles.mean(
            [float(pattern[n, n - 1]) for n in range(start + 1, len(pattern))]
        ),
    }


def copy_losses(
    chances: np.ndarray, ids: Sequence[int], start: int, period: int
) -> tuple[float, float]:
    """Mean loss of the tokens of either copy; the very first token has none."""
    losses = {n: op.nll(chances[n - 1].tolist(), ids[n]) for n in range(1, len(ids))}
    first = [losses[n] for n in range(start, start + period) if n > 0]
    second = [losses[n] for n in range(start + period, start + 2 * period)]
    return oracles.mean(first), oracles.mean(second)


line_slope = oracles.slope


def slopes(pattern: np.ndarray, first: int) -> list[float]:
    """Slope of each row over the keys from `first` to before the query; nan for fewer than 3."""
    found = []
    for n in range(len(pattern)):
        keys = list(range(first, n))
        enough = len(keys) >= 3
        found.append(line_slope(keys, [float(pattern[n, i]) for i in keys]) if enough else math.nan)
    return found


def exponent(norms: Sequence[float]) -> float:
    """Exponent of norms as a power of the number of visible tokens, position 0 left out."""
    if not all(norms[1:]):
        return math.nan
    visible = [math.log(n + 1) for n in range(1, len(norms))]
    return line_slope(visible, [math.log(norm) for norm in norms[1:]])


def root_norms(squares: Sequence[np.ndarray]) -> list[list[float]]:
    """Root mean square norms `[head][pos]` of samples of squared ones."""
    heads, length = squares[0].shape
    return [
        [math.sqrt(oracles.mean([float(s[head, n]) for s in squares])) for n in range(length)]
        for head in range(heads)
    ]


def factors(norms: Sequence[Sequence[float]], start: int) -> list[list[float]]:
    """What makes norms `[head][pos]` equal to their mean from `start` on; 1 where they are 0."""
    found = []
    for row in norms:
        target = oracles.mean(row[start:])
        found.append([1.0] * start + [target / norm if norm else 1.0 for norm in row[start:]])
    return found


def diagonal_means(pattern: np.ndarray) -> list[float]:
    """Mean of `A(n, n-k)` over the `n` with `n - k >= 1`, for each `k`; nan for the last."""
    return [*oracles.diagonal_profile([pattern.tolist()], 1), math.nan]
