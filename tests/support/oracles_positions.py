"""Brute-force oracles of positions and previous-token heads, in plain loops over lists of floats.

Like `tests.support.oracles`, they share no code with `poskernel_core` and use no array library.
A matrix is a list of rows; "rows" are `[pos][model]`.
"""

import math
from collections.abc import Mapping, Sequence

from tests.support.oracles import Row, dot, mean, mean_row

Matrix = Sequence[Row]

_SWEEPS = 50


def centred(rows: Matrix) -> list[list[float]]:
    """Rows minus their mean over positions."""
    middle = mean_row(rows)
    return [[x - m for x, m in zip(row, middle, strict=True)] for row in rows]


def _transposed(rows: Matrix) -> list[list[float]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _products(vectors: Matrix) -> list[list[float]]:
    """All dot products of some vectors."""
    return [[dot(a, b) for b in vectors] for a in vectors]


def _rotate(a: list[list[float]], vectors: list[list[float]], p: int, q: int) -> None:
    """One Jacobi rotation in place: it makes `a[p][q]` 0, and turns rows `p`, `q` of `vectors`."""
    if a[p][q] == 0:
        return
    ratio = (a[q][q] - a[p][p]) / (2 * a[p][q])
    tangent = math.copysign(1, ratio) / (abs(ratio) + math.hypot(1, ratio))
    cosine = 1 / math.hypot(1, tangent)
    sine = tangent * cosine
    for row in a:
        row[p], row[q] = cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]
    for rows in (a, vectors):
        for j in range(len(rows[p])):
            x, y = rows[p][j], rows[q][j]
            rows[p][j], rows[q][j] = cosine * x - sine * y, sine * x + cosine * y


def _eigen(symmetric: Matrix) -> tuple[list[float], list[list[float]]]:
    """Eigenvalues in descending order, and their unit eigenvectors, by the Jacobi method."""
    a = [list(row) for row in symmetric]
    size = len(a)
    vectors = [[float(i == j) for j in range(size)] for i in range(size)]
    bound = 1e-30 * math.fsum(x * x for row in a for x in row)
    for _ in range(_SWEEPS):
        if math.fsum(a[i][j] ** 2 for i in range(size) for j in range(i)) <= bound:
            break
        for p in range(size):
            for q in range(p + 1, size):
                _rotate(a, vectors, p, q)
    order = sorted(range(size), key=lambda i: -a[i][i])
    return [a[i][i] for i in order], [vectors[i] for i in order]


def pca(rows: Matrix, k: int) -> tuple[list[float], list[list[float]]]:
    """Explained variance of the first `k` components, as shares, and the components.

    Args:
        rows: centred by the caller.
        k: how many components.

    Returns:
        `k` shares in [0, 1], descending; `k` unit vectors of the model's width, of either sign.
    """
    values, vectors = _eigen(_products(_transposed(rows)))
    return [value / math.fsum(values) for value in values[:k]], vectors[:k]


def _angles(basis: Matrix, other: Matrix) -> list[float]:
    """Canonical angles of two orthonormal bases of `k` vectors, in degrees, ascending."""
    overlaps = [[dot(u, v) for v in other] for u in basis]
    squares, _ = _eigen(_products(overlaps))
    return [math.degrees(math.acos(math.sqrt(min(max(s, 0.0), 1.0)))) for s in squares]


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

    Args:
        streams: `[token][pos][model]`, of a prompt of each token repeated.
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

    Args:
        q: queries of one head on one text, `[pos][d]`.
        k: its keys.
        scale: of the dot product.
        band: the largest offset; negative offsets look ahead.
        start: the first position that counts, as query and as key: 1 leaves out a start token.
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
    """Largest and second-largest diagonal as (offset, value), and second / largest.

    Args:
        profile: `P(k)` for `k` from 0, see `tests.support.oracles.diagonal_profile`.
    """
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
