"""Brute-force oracles of positions and previous-token heads, in plain loops over lists of floats.

Like `tests.support.oracles`, they share no code with `poskernel_core`; eigenvalues are NumPy's.
A matrix is a list of rows; "rows" are `[pos][model]`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tests.support.oracles import Row, dot, mean, mean_row

Matrix = Sequence[Row]


def centred(rows: Matrix) -> list[list[float]]:
    middle = mean_row(rows)
    return [[x - m for x, m in zip(row, middle, strict=True)] for row in rows]


def _transposed(rows: Matrix) -> list[list[float]]:
    return [list(column) for column in zip(*rows, strict=True)]


def pca(rows: Matrix, k: int) -> tuple[list[float], list[list[float]]]:
    """Explained variance of the first `k` components of centred rows, and the components.

    `k` shares in [0, 1], descending; `k` unit vectors of the model's width, of either sign.
    """
    columns = np.array(rows)
    values, vectors = np.linalg.eigh(columns.T @ columns)
    return (values[::-1] / values.sum())[:k].tolist(), vectors.T[::-1][:k].tolist()


def _angles(basis: Matrix, other: Matrix) -> list[float]:
    """Canonical angles of two orthonormal bases of `k` vectors, in degrees, ascending."""
    overlaps = np.array([[dot(u, v) for v in other] for u in basis])
    squares = np.linalg.eigvalsh(overlaps @ overlaps.T)[::-1]
    return np.degrees(np.arccos(np.sqrt(squares.clip(0, 1)))).tolist()


def canonical_angles(a: Matrix, b: Matrix, k: int) -> list[float]:
    """Angles of the top-`k` RIGHT singular subspaces (of the stream), in degrees, ascending.

    The caller centres the rows, or does not.
    """
    return _angles(pca(a, k)[1], pca(b, k)[1])


def canonical_angles_left(a: Matrix, b: Matrix, k: int) -> list[float]:
    """The same of the top-`k` LEFT singular vectors: directions in position space."""
    return canonical_angles(_transposed(a), _transposed(b), k)


def extended_positions(streams: Sequence[Matrix]) -> list[list[float]]:
    """`X`: mean over tokens of the stream minus its mean over positions, `[pos][model]`.

    The streams `[token][pos][model]` are those of a prompt of each token repeated.
    """
    moved = [centred(stream) for stream in streams]
    return [mean_row([rows[n] for rows in moved]) for n in range(len(moved[0]))]


def token_spread(streams: Sequence[Matrix]) -> float:
    """`sqrt(mean over tokens of ||X_t - X||_F^2) / ||X||_F`, with `X_t` of one token alone."""
    X = extended_positions(streams)
    squares = []
    for stream in streams:
        X_t = centred(stream)
        squares.append(math.fsum(math.dist(a, b) ** 2 for a, b in zip(X_t, X, strict=True)))
    return math.sqrt(mean(squares) / math.fsum(dot(row, row) for row in X))


def far_share(X: Matrix, far: float) -> float:
    """Share of the entries with `|x| > far * (root mean square of all entries)`."""
    entries = [x for row in X for x in row]
    bound = far * math.sqrt(mean([x * x for x in entries]))
    return sum(abs(x) > bound for x in entries) / len(entries)


def group_means(rows: Matrix, g: int) -> list[list[float]]:
    """Means of consecutive groups of `g` rows; the last group may be shorter."""
    return [mean_row(rows[first : first + g]) for first in range(0, len(rows), g)]


def averaged_positions(rows: Matrix, g: int) -> list[list[float]]:
    """Each row replaced by the mean of its group of `g`."""
    means = group_means(rows, g)
    return [list(means[n // g]) for n in range(len(rows))]


def score_profile(q: Matrix, k: Matrix, scale: float, band: int, start: int) -> dict[int, float]:
    """Mean raw score `scale * q_n . k_(n - offset)` over `n`, for offsets `-band` to `band`.

    Queries and keys `[pos][d]` are of one head on one text; negative offsets look ahead; `start` is
    the first position that counts, as query and as key.
    """
    profile = {}
    for offset in range(-band, band + 1):
        pairs = [(n, n - offset) for n in range(start, len(q)) if start <= n - offset < len(k)]
        profile[offset] = mean([scale * dot(q[n], k[i]) for n, i in pairs])
    return profile


def contrasts(profile: Mapping[int, float]) -> tuple[float, float]:
    """Score at offset 0 and at 1, minus the straight line through offsets -1 and 2."""
    step = (profile[2] - profile[-1]) / 3
    return profile[0] - (profile[-1] + step), profile[1] - (profile[-1] + 2 * step)


def largest_two(profile: Row) -> tuple[tuple[int, float], tuple[int, float], float]:
    """Largest and second-largest of `P(k)` as (offset, value), and second / largest."""
    first, second = sorted(range(len(profile)), key=lambda k: -profile[k])[:2]
    return (first, profile[first]), (second, profile[second]), profile[second] / profile[first]


def previous_mass(pattern: Matrix, tokens: Sequence[int], start: int) -> tuple[float, float]:
    """Mean of `A(n, n-1)` over `n > start`: where token `n` is that of `n - 1`, and elsewhere.

    Either is nan if there is no such `n`.
    """
    repeated, other = [], []
    for n in range(start + 1, len(tokens)):
        (repeated if tokens[n] == tokens[n - 1] else other).append(pattern[n][n - 1])
    return mean(repeated), mean(other)


def kl(p: Row, q: Row) -> float:
    """Kullback-Leibler divergence of `q` from `p`, `sum p log(p / q)`, in nats."""
    pairs = [(x, y) for x, y in zip(p, q, strict=True) if x > 0]
    if any(y == 0 for _, y in pairs):
        return math.inf
    return math.fsum(x * math.log(x / y) for x, y in pairs)


def nll(p: Row, index: int) -> float:
    """Negative log-likelihood of one outcome, in nats."""
    return -math.log(p[index]) if p[index] > 0 else math.inf
