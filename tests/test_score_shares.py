"""Score variance explained: by hand, by plain loops, and heads that know only one of both."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from poskernel_core.analyses.score_shares.run import shares
from poskernel_core.analyses.score_shares.spec import ScoreShares
from poskernel_core.common.attention import first_visible
from tests import oracles
from tests.builders import contextual
from tests.builders.contextual import CONTENT, TAU, perform, some_windows, study
from tests.truth import truth_of

TEXTS = 5
# model, skip, start token, context, windows and divisors of scores by layer
CASES = {
    "learned": ("gpt2", 4, True, 23, [None] * 3, [7**0.5] * 3),
    "local layer": ("gpt_neo", 2, False, 19, [None, 5, None], [1] * 3),
    "grouped": ("llama", 0, True, 17, [None] * 3, [10**0.5] * 3),
    "window": ("mistral", 1, True, 29, [7] * 3, [14**0.5] * 3),
}


def variance(numbers):
    """The mean square about the mean."""
    middle = oracles.mean(numbers)
    return oracles.mean([(number - middle) ** 2 for number in numbers])


def test_by_hand():
    """Two texts: position 1 and 3, content 4 and 8, twice the covariance -1 and 1; 16 in all.

    Without the first text 3, 8, 1 of 12, without the second 1, 4, -1 of 4: a jackknife of two is
    half of their difference.
    """
    found, errors = shares(np.array([[1.0, 3.0], [4.0, 8.0], [-1.0, 1.0]]))

    np.testing.assert_allclose(found, [4 / 16, 12 / 16, 0])
    np.testing.assert_allclose(errors, [0, abs(8 / 12 - 1) / 2, (1 / 12 + 1 / 4) / 2], atol=1e-15)


@given(arrays.arrays(float, (2, 3, 7), elements=st.floats(0.01, 10)), st.floats(0.1, 10))
def test_shares_add_up(squares, factor):
    """To 1, whatever the unit of the scores."""
    parts = np.stack([*squares, -0.5 * np.sqrt(squares[0] * squares[1])])
    found, errors = shares(parts)

    np.testing.assert_allclose(found.sum(axis=0), 1)
    np.testing.assert_allclose(found, shares(parts * factor**2)[0])
    np.testing.assert_allclose(errors, shares(parts * factor**2)[1], atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_plain_loops(model_dirs, case):
    """Variances of every row, with the keys and queries of plain transformers."""
    name, skip, start, context, windows, divisors = CASES[case]
    ids = some_windows(TEXTS, context, start)
    subject, main = study(model_dirs[name], ids, start, batch=2)
    result = perform(ScoreShares, subject, main, skip=skip, first_windows=TEXTS)
    truth = truth_of(model_dirs[name], ids)

    for layer, (queries, keys) in enumerate(zip(truth.queries, truth.keys, strict=True)):
        heads, means = queries.shape[1], keys.mean(axis=0)
        for head in range(heads):
            kv = head * keys.shape[1] // heads
            for place, n in enumerate(main.header.positions):
                seen = range(first_visible(n, skip, windows[layer]), n + 1)
                rows = []
                for text in range(TEXTS):
                    q = queries[text, head, n].astype(float) / divisors[layer]
                    s = [math.fsum(q * keys[text, kv, i]) for i in seen]
                    a = [math.fsum(q * means[kv, i]) for i in seen]
                    rows.append((s, a, [one - other for one, other in zip(s, a, strict=True)]))
                found = [
                    result.values[f"{part}_share"][layer, head, place]
                    for part in ("position", "content")
                ]
                if len(seen) < 2:
                    assert np.isnan(found).all()
                    continue
                whole = math.fsum(variance(s) for s, _, _ in rows)
                expected = [
                    math.fsum(variance(row[part]) for row in rows) / whole for part in (1, 2)
                ]
                np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_heads_that_know_one_of_them(tmp_path):
    """Content alone, both, and position alone, of known variances."""
    T, skip = 31, 1
    path = contextual.additive(tmp_path / "additive", CONTENT, T)
    ids = some_windows(97, T, True)
    subject, main = study(path, ids)
    result = perform(ScoreShares, subject, main, skip=skip, first_windows=97)
    position, content = result.values["position_share"][0], result.values["content_share"][0]
    last = len(main.header.positions) - 1
    n = main.header.positions[last]

    np.testing.assert_allclose([position[2, last], content[2, last]], [1, 0], atol=1e-5)
    assert position[0, last] < 0.03  # means of 97 texts leave a little
    assert content[0, last] > 0.97
    score = np.array(CONTENT)[ids[:, skip : n + 1]]
    ramp = np.arange(skip, n + 1) / TAU
    mean = score.mean(axis=0)
    both = (score + ramp).var(axis=1).mean()
    assert (ramp + mean).var() / both == pytest.approx(position[1, last], rel=1e-3)
    assert (score - mean).var(axis=1).mean() / both == pytest.approx(content[1, last], rel=1e-3)
