"""Shares of components by hand, by plain loops, and what must add up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.position_sources.formulas import (
    Reading,
    by_offset,
    effects,
    equal_weights,
    gradient,
    triples,
)
from poskernel_core.common.attention import ScoreRule, Slopes

GROUPS, KEYS, WIDTH, COMPONENTS = 5, 7, 3, 2
POSITIONS = np.array([2, 5, 6, 5])


def made(seed, rule, skip=1, groups=GROUPS):
    """A head that reads random queries and the sum of random components, `[group, c, key, d]`."""
    random = np.random.default_rng(seed)
    parts = random.normal(size=(groups, COMPONENTS, KEYS, WIDTH))
    queries = random.normal(size=(groups, len(POSITIONS), WIDTH))
    return Reading(queries, POSITIONS, parts.sum(axis=1), rule, skip), parts


def equal(reading):
    keys = reading.keys.shape[1]
    weights = equal_weights(reading.rule, reading.positions, keys, reading.skip)
    return np.tile(weights, (len(reading.queries), 1, 1))


def shares(found, parts):
    return sum(found.of(group, keys) for group, keys in enumerate(parts))


RULES = {
    "plain": ScoreRule(0.7),
    "window": ScoreRule(0.7, window=3),
    "cap": ScoreRule(0.7, cap=1.3),
    "ALiBi": ScoreRule(0.7, slopes=Slopes((0.4,))),
}


def test_by_hand():
    """One query of 1 in each of four groups, the same two keys in each: (0, 3) = (0, 1) + (0, 2).

    With the weights 1/3 and 2/3 the variance is 9 * 2/9 = 2, and the parts have 1/3 and 2/3 of it.
    """
    parts = np.tile(np.array([[0.0, 1.0], [0.0, 2.0]])[None, :, :, None], (4, 1, 1, 1))
    reading = Reading(np.ones((4, 1, 1)), np.array([1]), parts.sum(axis=1), ScoreRule(1.0), 0)
    weights = np.tile(np.array([1 / 3, 2 / 3]), (4, 1, 1))

    found = gradient(reading, [weights], [np.ones(4, bool)])

    assert found.total == pytest.approx([2])
    assert found.plain == pytest.approx([2])
    np.testing.assert_allclose(shares(found, parts), [[1 / 3, 2 / 3]])


def test_noise_by_hand():
    """Keys (0, x) with x = 1, -1, 1, -1 in four groups, equal weights: they agree on nothing.

    Of the pairs of different groups a third agrees, so the mean product is -1/3; a variance is a
    quarter of it, -1/12. The mean of all four is 0, and so is its variance.
    """
    keys = np.array([[0.0, x] for x in (1, -1, 1, -1)])[..., None]
    reading = Reading(np.ones((4, 1, 1)), np.array([1]), keys, ScoreRule(1.0), 0)

    found = gradient(reading, [equal(reading)], [np.ones(4, bool)])

    assert found.total == pytest.approx([-1 / 12])
    assert found.plain == pytest.approx([0])


def by_loops(reading, parts, weights, kept):
    """Numerators of the components and of the bias, and the variance with its noise, by loops."""
    groups = [g for g in range(len(kept)) if kept[g]]
    sums, bias, count, noisy = [0.0] * COMPONENTS, 0.0, 0, []
    for own in groups:
        for row, n in enumerate(reading.positions):
            q = reading.queries[own, row]
            weight = weights[own, row]
            slope = reading.rule.slopes.per_head[0] if reading.rule.slopes else 0.0
            added = [-slope * (n - i) for i in range(KEYS)]

            def score(keys, q=q):
                return [reading.rule.scale * math.fsum(q * keys[i]) for i in range(KEYS)]

            def cov(x, y, weight=weight):
                mx, my = (math.fsum(w * z for w, z in zip(weight, each, strict=True))
                          for each in (x, y))  # fmt: skip
                return math.fsum(
                    w * (a - mx) * (b - my) for w, a, b in zip(weight, x, y, strict=True)
                )

            whole = {h: [a + b for a, b in zip(score(reading.keys[h]), added, strict=True)]
                     for h in groups}  # fmt: skip
            mean = [sum(whole[h][i] for h in groups) / len(groups) for i in range(KEYS)]
            noisy.append(cov(mean, mean))
            for g in groups:
                for h in groups:
                    if len({g, h, own}) == 3:
                        count += 1
                        bias += cov(added, whole[h])
                        for c in range(COMPONENTS):
                            sums[c] += cov(score(parts[g, c]), whole[h])
    return [each / count for each in sums], bias / count, sum(noisy) / len(noisy)


@pytest.mark.parametrize("rule", RULES)
def test_plain_loops(rule):
    """Shares and noise with all groups, and without the third, with kernels as weights."""
    reading, parts = made(3, RULES[rule])
    kernel = reading.kernel(reading.products(reading.keys.mean(axis=0)))
    choices = [np.ones(GROUPS, bool), np.arange(GROUPS) != 2]

    found = gradient(reading, [kernel, equal(reading)], choices)

    for place, weights in enumerate((kernel, equal(reading))):
        sums, bias, noisy = by_loops(reading, parts, weights, choices[place])
        total = sum(sums) + bias
        assert found.total[place] == pytest.approx(total)
        assert found.plain[place] == pytest.approx(noisy)
        assert found.noise[place] == pytest.approx(1 - total / noisy)
        np.testing.assert_allclose(
            shares(found, parts)[place], np.array(sums) / total, rtol=1e-6, atol=2e-6
        )
        assert found.by_bias[place] / found.total[place] == pytest.approx(bias / total, abs=1e-6)


def test_weights_of_one_choice_serve_all():
    reading, _ = made(4, RULES["plain"])
    choices = [np.ones(GROUPS, bool), np.arange(GROUPS) != 2]
    weights = equal(reading)

    one, each = (gradient(reading, given, choices) for given in ([weights], [weights, weights]))

    np.testing.assert_array_equal(one.by_keys, each.by_keys)


@given(st.integers(0, 10**6), st.sampled_from([*RULES]), st.integers(4, 7))
def test_shares_add_up(seed, rule, groups):
    reading, parts = made(seed, RULES[rule], groups=groups)
    kernel = reading.kernel(reading.products(reading.keys.mean(axis=0)))

    found = gradient(reading, [kernel], [np.ones(groups, bool)])

    whole = shares(found, parts).sum() + found.by_bias[0] / found.total[0]
    assert whole == pytest.approx(1, rel=1e-4)


def test_triples():
    kept = np.array([True, True, False, True, True])
    weights = triples(kept)

    chosen = [(g, h, o) for g, h, o in np.ndindex(5, 5, 5)
              if len({g, h, o}) == 3 and 2 not in (g, h, o)]  # fmt: skip
    for place in np.ndindex(5, 5, 5):
        assert weights[place] == pytest.approx((place in chosen) / len(chosen))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("out", [None, 2])
def test_effects_by_loops(rule, out):
    """With all groups, and without one and its queries."""
    reading, parts = made(5, RULES[rule])
    run_keys = parts.sum(axis=1)[0]
    kept = [g for g in range(GROUPS) if g != out]
    slope = reading.rule.slopes.per_head[0] if reading.rule.slopes else 0.0

    (found,) = effects(
        reading, [run_keys], parts, [np.isin(np.arange(GROUPS), kept)], lambda done, total: None
    )

    component = [sum(parts[g, c] for g in kept) / len(kept) for c in range(COMPONENTS)]
    without = [(run_keys - each, slope) for each in component]
    without += [(run_keys, 0.0)] if slope else []
    assert len(found) == len(without)
    for c, changed in enumerate(without):
        gaps = []
        for own in kept:
            for row, n in enumerate(reading.positions):
                kernels = []
                for keys, fall in ((run_keys, slope), changed):
                    weights = {}
                    for i in range(1, n + 1):
                        if reading.rule.window and i <= n - reading.rule.window:
                            continue
                        score = reading.rule.scale * math.fsum(reading.queries[own, row] * keys[i])
                        if reading.rule.cap:
                            score = reading.rule.cap * math.tanh(score / reading.rule.cap)
                        weights[i] = math.exp(score - fall * (n - i))
                    total = sum(weights.values())
                    kernels.append({i: w / total for i, w in weights.items()})
                gaps.append(sum(abs(kernels[0][i] - kernels[1][i]) for i in kernels[0]) / 2)
        assert found[c] == pytest.approx(sum(gaps) / len(gaps))


@pytest.mark.parametrize("rule", RULES)
def test_scores_by_offset_by_loops(rule):
    """With all groups, and without the fourth, up to offset 3."""
    reading, parts = made(6, RULES[rule])
    choices = [np.ones(GROUPS, bool), np.arange(GROUPS) != 3]

    kernel = reading.kernel(reading.products(parts.sum(axis=1).mean(axis=0)))
    found = by_offset(reading, kernel, parts, choices, 4)

    bias = reading.rule.slopes is not None
    assert found.shape == (2, 3, COMPONENTS + bias, 4)  # positions 2, 5 and 6
    for choice, place, c, offset in np.ndindex(found.shape):
        n = (2, 5, 6)[place]
        window = reading.rule.window or KEYS
        seen = [i for i in range(1, n + 1) if i > n - window]
        if n - offset not in seen:
            assert np.isnan(found[choice, place, c, offset])
            continue
        rows, at = [], np.flatnonzero(reading.positions == n)
        weight = [math.fsum(kernel[:, at, i].ravel()) / GROUPS / len(at) for i in range(KEYS)]
        groups = [g for g in range(GROUPS) if choices[choice][g]]
        for own in groups:
            for row in at:
                for g in groups:
                    if c == COMPONENTS:
                        score = {i: -0.4 * (n - i) for i in seen}
                    else:
                        score = {i: 0.7 * math.fsum(reading.queries[own, row] * parts[g, c, i])
                                 for i in seen}  # fmt: skip
                    if g != own:
                        mean = sum(weight[i] * score[i] for i in seen)
                        rows.append(score[n - offset] - mean)
        expected = sum(rows) / len(rows)
        assert found[choice, place, c, offset] == pytest.approx(expected, abs=1e-9)
