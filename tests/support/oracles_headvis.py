"""The metrics and the example texts of HeadVis once more, in plain loops over lists of floats.

`texts` are patterns, one a text: `pattern[q][k]`, a square of floats, 0 where nothing is seen.
"""

import math

import numpy as np

METRICS = (
    "self_attention_score",
    "prev_token_score",
    "pattern_entropy",
    "qk_distance",
    "qk_distance_variance",
    "induction_score",
)


def sums(pattern, ids):
    """What one text adds: five sums, tokens, pairs, the induction sum, queries that repeat."""
    shares, places = np.array(pattern), np.arange(len(pattern))
    back, seen = places[:, None] - places, shares[shares > 0]
    own, previous, pairs = np.trace(shares), np.trace(shares, -1), len(pattern) - 1
    entropy = -(seen * np.log(seen)).sum()
    distance, square = (shares * abs(back)).sum(), (shares * back**2).sum()
    induction, repeated = 0.0, 0
    for q, row in enumerate(pattern):
        earlier = [j for j in range(q) if ids[j] == ids[q]]
        repeated += bool(earlier)
        induction += math.fsum(row[j + 1] for j in earlier if row[j + 1] >= 0.01)
    return own, previous, entropy, distance, square, len(pattern), pairs, induction, repeated


def metrics(texts):
    """The six metrics of one head, in the order of METRICS, over the sums of texts."""
    own, previous, entropy, distance, square, count, pairs, induction, repeated = (
        math.fsum(column) for column in zip(*texts, strict=True)
    )
    mean = distance / count
    return [
        own / count,
        previous / pairs if pairs else math.nan,
        entropy / count,
        mean,
        square / count - mean**2,
        induction / repeated if repeated else math.nan,
    ]


def largest(pattern):
    """The largest attention of a text, without its first query and its first key."""
    return max((p for row in pattern[1:] for p in row[1:]), default=0.0)


def top_keys(row, count):
    """The most attended keys of a row, attention and key, the largest first."""
    return sorted(((p, k) for k, p in enumerate(row)), reverse=True)[:count]
