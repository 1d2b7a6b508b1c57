"""Brute-force oracles: the definitions once more, in plain loops over lists of floats.

They share no code with `poskernel_core`, use no array library, and are as slow as they are plain.
A row is a list of `T` floats over key positions; what is not visible holds 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression

Row = Sequence[float]

LOCAL = "local"
SLOW_DECAY = "slow decay"
UNIFORM = "uniform"


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def mean_row(rows: Sequence[Row]) -> list[float]:
    """Mean of several vectors of one length, entry by entry."""
    return [mean([row[i] for row in rows]) for i in range(len(rows[0]))]


def dot(a: Row, b: Row) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def visible(n: int, skip: int, window: int | None) -> list[int]:
    """The keys that position `n` sees: `skip <= i <= n`, and `i > n - window` in a local layer."""
    return [i for i in range(n + 1) if i >= skip and (window is None or i > n - window)]


def variance(values: Sequence[float]) -> float:
    middle = mean(values)
    return mean([(value - middle) ** 2 for value in values])


def standard_error(values: Sequence[float]) -> float:
    return math.sqrt(variance(values) / (len(values) - 1))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope of the least-squares line."""
    return linear_regression(x, y).slope


def softmax(scores: Row) -> list[float]:
    return softmax_at(dict(enumerate(scores)), len(scores))


def softmax_at(scores: Mapping[int, float], length: int) -> list[float]:
    """Softmax over the positions that `scores` names, 0 at the others of `length`."""
    top = max(scores.values())
    total = math.fsum(math.exp(score - top) for score in scores.values())
    row = [0.0] * length
    for i, score in scores.items():
        row[i] = math.exp(score - top) / total
    return row


def kernel_row(
    q: Row, mean_keys: Sequence[Row], scale: float, n: int, skip: int, window: int | None = None
) -> list[float]:
    """Kernel `K(n, .)`: softmax of `scale * q . m_i` over the visible `i >= skip`."""
    scores = {i: scale * dot(q, mean_keys[i]) for i in visible(n, skip, window)}
    return softmax_at(scores, len(mean_keys))


def mean_kernel(
    queries: Sequence[Row],
    mean_keys: Sequence[Row],
    scale: float,
    n: int,
    skip: int,
    window: int | None = None,
) -> list[float]:
    """Mean over several queries at position `n` of their kernels."""
    return mean_row([kernel_row(q, mean_keys, scale, n, skip, window) for q in queries])


def etc(row: Row) -> float:
    """Effective token count `1 / sum K^2`, in tokens."""
    return 1 / math.fsum(k * k for k in row)


def local_mass(row: Row, n: int, tokens: int = 10) -> float:
    """Mass of the last `tokens` positions: offsets 0 to `tokens - 1`."""
    return math.fsum(row[n - k] for k in range(tokens) if n - k >= 0)


def half_mass_distance(row: Row, n: int) -> float:
    """How far back half of the mass lies, that of offset `k` spread evenly from `k` to `k + 1`."""
    for k in range(n + 1):
        if local_mass(row, n, k + 1) >= 0.5:
            return k + (0.5 - local_mass(row, n, k)) / row[n - k]
    raise ValueError(f"the row holds {math.fsum(row)} up to position {n}, less than half")


def kind(row: Row, n: int, skip: int, window: int | None = None, tokens: int = 10) -> str:
    """Kind of a kernel: local first, then uniform, else slow decay."""
    if local_mass(row, n, tokens) >= 0.5:
        return LOCAL
    if etc(row) >= 0.5 * len(visible(n, skip, window)):
        return UNIFORM
    return SLOW_DECAY


def entropy(row: Row, skip: int) -> float:
    """Entropy of a row of probabilities from key `skip` on, in nats; NaN without any."""
    left = [float(p) for p in row[skip:]]
    mass = math.fsum(left)
    return -math.fsum(p / mass * math.log(p / mass) for p in left if p > 0) if mass else math.nan


def total_variation(a: Row, b: Row) -> float:
    """Total-variation distance, half the sum of absolute differences, in [0, 1]."""
    return 0.5 * math.fsum(abs(x - y) for x, y in zip(a, b, strict=True))


def _by_offset(row: Row, n: int, offsets: int) -> list[float]:
    total = math.fsum(row[n - k] for k in range(offsets))
    return [row[n - k] / total for k in range(offsets)]


def aligned_distance(row: Row, n: int, other_row: Row, other_n: int, skip: int) -> float:
    """Distance of the kernels of two positions, both read by offset from their own position.

    Offsets run from 0 to `min(n, other_n) - skip`, and each kernel is renormalised on them.
    """
    offsets = min(n, other_n) - skip + 1
    return total_variation(_by_offset(row, n, offsets), _by_offset(other_row, other_n, offsets))


def equivariance(n: int, rows: Mapping[int, Row], skip: int) -> float:
    """Mean aligned distance of position `n` to the other positions of the grid that see a key.

    `rows` are the mean kernels of the grid's positions.
    """
    others = [m for m in rows if m != n and visible(m, skip, None)]
    return mean([aligned_distance(rows[n], n, rows[m], m, skip) for m in others])


def fidelity(mean_kernel_row: Row, mean_observed_row: Row, skip: int) -> float:
    """Distance of the mean kernel to the mean attention, renormalised on `i >= skip`."""
    total = math.fsum(mean_observed_row[skip:])
    observed = [0.0 if i < skip else a / total for i, a in enumerate(mean_observed_row)]
    return total_variation(mean_kernel_row, observed)


def diagonal_profile(patterns: Sequence[Sequence[Row]], start: int) -> list[float]:
    """`P(k)`, `k` from 0: mean of `A(n, n-k)` over texts and over `n` from `k + start` to `T - 1`.

    `patterns[text][n][i]` are not renormalised; `start` is 1 where the first token does not count.
    """
    length = len(patterns[0])
    return [
        mean([text[n][n - k] for text in patterns for n in range(k + start, length)])
        for k in range(length - start)
    ]


def jackknife_se(left_out: Sequence[float]) -> float:
    parts, centre = len(left_out), mean(left_out)
    return math.sqrt((parts - 1) / parts * math.fsum((x - centre) ** 2 for x in left_out))


def jackknife(count: int, statistic: Callable[[list[int]], float]) -> float:
    """Standard error of a statistic of so many items, item `i` in group `i mod 10`."""
    groups = [[i for i in range(count) if i % 10 != g] for g in range(min(10, count))]
    return jackknife_se([statistic(group) for group in groups])
