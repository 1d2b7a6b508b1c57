"""Score variance explained: by hand, by plain loops, and heads that know only one of both."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from poskernel_core.analyses.score_shares.experiment import shares, weights
from poskernel_core.analyses.score_shares.spec import ScoreShares
from poskernel_core.common.attention import ScoreRule
from tests.support import oracles
from tests.support.builders import contextual
from tests.support.builders.contextual import CONTENT, TAU, perform, some_windows, study
from tests.support.truth import truth_of

TEXTS, GROUPS = 7, 10
# model, skip, start token, context, windows and divisors of scores by layer
CASES = {
    "local layer": ("gpt_neo", 2, False, 19, [None, 5, None], [1] * 3),
    "grouped": ("llama", 0, True, 17, [None] * 3, [10**0.5] * 3),
    "window": ("mistral", 1, True, 29, [7] * 3, [14**0.5] * 3),
}


@given(arrays.arrays(float, (3, 7), elements=st.floats(0.01, 10)), st.floats(0.1, 10))
def test_shares_add_up(sums, factor):
    """Position 4, in common with the score 3, the score 16: content 16 - 6 + 4 = 14, twice -1."""
    by_hand = shares(*np.array([[4.0], [3.0], [16.0]]))
    assert [4 / 16, 14 / 16, -2 / 16] == [float(each[0]) for each in by_hand.values()]
    found, scaled = (np.stack([*shares(*each).values()]) for each in (sums, sums * factor**2))
    np.testing.assert_allclose(found.sum(axis=0), 1)
    np.testing.assert_allclose(found, scaled, rtol=1e-7, atol=1e-12)


def covariance(x, y):
    one, other = oracles.mean(x), oracles.mean(y)
    return oracles.mean([(a - one) * (b - other) for a, b in zip(x, y, strict=True)])


def expected_shares(rows, groups):
    """Shares of `rows [window] = (s, [a_g])`, of these groups alone; window `w` is of `w % 10`.

    Of four groups or more all of a product differ; below, `groups` of all windows are averaged.
    """
    own, common, whole = [], [], []
    for text, (s, a) in enumerate(rows):
        if text % GROUPS not in groups:
            continue
        others = [g for g in groups if g != text % GROUPS]
        pairs = [(g, h) for g in others for h in others if g != h]
        own.append(oracles.mean([covariance(a[g], a[h]) for g, h in pairs]))
        common.append(oracles.mean([covariance(s, a[g]) for g in others]))
        whole.append(oracles.variance(s))
    own, common, whole = map(math.fsum, (own, common, whole))
    return own / whole, (whole - 2 * common + own) / whole, 2 * (common - own) / whole


@pytest.mark.parametrize("case", CASES)
def test_plain_loops(model_dirs, case):
    name, skip, start, context, windows, divisors = CASES[case]
    ids = some_windows(TEXTS, context, start)
    subject, main = study(model_dirs[name], ids, start, batch=3)
    result = perform(ScoreShares, subject, main, skip=skip, first_windows=TEXTS)
    truth, groups = truth_of(model_dirs[name], ids), range(TEXTS % GROUPS)

    for layer, (queries, keys) in enumerate(zip(truth.queries, truth.keys, strict=True)):
        heads = queries.shape[1]
        for head, place in ((1, 3), (heads - 1, len(main.header.positions) - 1), (2, 0)):
            n, kv = main.header.positions[place], head * keys.shape[1] // heads
            seen = range(ScoreRule(1.0, windows[layer]).first_visible(n, skip), n + 1)
            rows = []
            for text in range(TEXTS):
                q = queries[text, head, n].astype(float) / divisors[layer]
                s = [math.fsum(q * keys[text, kv, i]) for i in seen]
                a = [[math.fsum(q * keys[g, kv, i]) for i in seen] for g in groups]
                rows.append((s, a))
            found, errors, biases = (
                [kind[part][layer, head, place] for part in result.values]
                for kind in (result.values, result.errors, result.biases)
            )
            if len(seen) < 2:
                assert np.isnan(found).all()
                continue
            whole = expected_shares(rows, groups)
            np.testing.assert_allclose(found, whole, rtol=2e-4, atol=2e-4)
            left = [expected_shares(rows, [g for g in groups if g != out]) for out in groups]
            columns = list(zip(*left, strict=True))
            np.testing.assert_allclose(
                errors, [*map(oracles.jackknife_se, columns)], rtol=2e-3, atol=1e-3
            )
            expected = [
                (len(left) - 1) * (oracles.mean(column) - one)
                for column, one in zip(columns, whole, strict=True)
            ]
            np.testing.assert_allclose(biases, expected, rtol=2e-3, atol=3e-3)


@pytest.mark.parametrize(("groups", "read"), [(10, 10), (10, 3), (4, 4), (3, 3), (2, 2), (1, 5)])
def test_weights(groups, read):
    pairs, alone, kept = weights(groups, read)

    for own, out in np.ndindex(read, 1 + read):
        left = [g for g in range(groups) if groups == 1 or g != out - 1]
        if groups >= 4:
            left = [g for g in left if g != own]
        chosen = [(g, h) for g in left for h in left if g != h or groups < 4]
        there = own != out - 1
        assert kept[own, out] == there
        for g, h in np.ndindex(groups, groups):
            assert pairs[own, out, g, h] == pytest.approx(there * ((g, h) in chosen) / len(chosen))
        for g in range(groups):
            assert alone[own, out, g] == pytest.approx(there * (g in left) / len(left))


def test_heads_that_know_one_of_them(tmp_path):
    T, skip = 31, 1
    path = contextual.additive(tmp_path / "additive", CONTENT, T)
    ids = some_windows(100, T, True)
    subject, main = study(path, ids)
    result = perform(ScoreShares, subject, main, skip=skip, first_windows=100)
    position, content = result.values["position_share"][0], result.values["content_share"][0]
    last = len(main.header.positions) - 1
    n = main.header.positions[last]

    np.testing.assert_allclose([position[2, last], content[2, last]], [1, 0], atol=1e-5)
    assert position[0, last] < 0.03  # means of 100 texts leave a little
    assert content[0, last] > 0.97
    score = np.array(CONTENT)[ids[:, skip : n + 1]]
    ramp = np.arange(skip, n + 1) / TAU
    both = ramp.var(), score.var(axis=1).mean()
    for part, expected in zip(("position", "content"), both, strict=True):
        error = float(result.errors[f"{part}_share"][0, 1, last])
        assert 0 < error < 0.05
        found = float(result.values[f"{part}_share"][0, 1, last])
        assert expected / sum(both) == pytest.approx(found, abs=result.interval * 1.5 * error)
