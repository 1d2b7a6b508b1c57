"""Shares of components by hand, by plain loops, and what must add up."""

from itertools import product
from types import SimpleNamespace

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
)
from poskernel_core.common.attention import ScoreRule, Slopes
from tests.support.oracles_position_sources import Expected

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


@pytest.mark.parametrize("out", [None, 2])
@pytest.mark.parametrize("rule", RULES)
def test_plain_loops(rule, out):
    """Shares, noise, effects and scores by offset of two texts a group; also without a group."""
    random, rule, names = np.random.default_rng(3), RULES[rule], ("L0H0", "MLP 0")
    parts = {name: random.normal(size=(2 * GROUPS, 1, KEYS, WIDTH)) for name in names}
    split = SimpleNamespace(
        queries=random.normal(size=(2 * GROUPS, 1, KEYS, WIDTH)), keys=parts, still=parts,
        turn=lambda x: x, scale=rule.scale, window=rule.window, capped=rule.capped,
        slopes=rule.slopes and rule.slopes.per_head,
    )  # fmt: skip
    positions, kept = [2, 5, 6], [g for g in range(GROUPS) if g != out]
    # with a cap, the effect is that of the capped scores, and all else of those before it
    expected = Expected(split, 0, positions, 1, GROUPS, kept)

    order = [[g, g + GROUPS] for g in range(GROUPS)]
    queries = split.queries[order][:, :, 0][:, :, positions].reshape(GROUPS, -1, WIDTH)
    keys = np.stack([parts[name][order][:, :, 0].mean(axis=1) for name in names], axis=1)
    reading = Reading(queries, np.tile(positions, 2), keys.sum(axis=1), rule, 1)
    choice = np.isin(np.arange(GROUPS), kept)
    run_keys = reading.keys[choice].mean(axis=0)
    kernel = reading.kernel(reading.products(run_keys))

    for name, weights in (("share", kernel), ("equal_share", equal(reading))):
        found = gradient(reading, [weights], [choice])
        own = [*shares(found, keys)[0], *found.bias_share[: rule.slopes is not None]]
        assert own == pytest.approx([*expected.values[name].values()], rel=1e-5, abs=2e-6)
        if name == "share":
            assert found.noise == pytest.approx(expected.noise, rel=1e-5)
    (moved,) = effects(reading, [run_keys], keys, [choice], lambda done, total: None)
    assert moved.tolist() == pytest.approx([*expected.values["effect"].values()])
    kernel[~choice] = kernel[choice].mean(axis=0)  # of the queries that are left
    (scores,) = by_offset(reading, kernel, keys, [choice], 4)
    for (place, n), (c, name) in product(enumerate(positions), enumerate(expected.names)):
        row = expected.scores[n, name][::-1][:4]
        np.testing.assert_allclose(scores[place, c, : len(row)], row, atol=1e-9)
        assert np.isnan(scores[place, c, len(row) :]).all()


@given(st.integers(0, 10**6), st.sampled_from([*RULES]), st.integers(4, 7))
def test_shares_add_up(seed, rule, groups):
    reading, parts = made(seed, RULES[rule], groups=groups)
    kernel = reading.kernel(reading.products(reading.keys.mean(axis=0)))

    found = gradient(reading, [kernel], [np.ones(groups, bool)])

    whole = shares(found, parts).sum() + found.by_bias[0] / found.total[0]
    assert whole == pytest.approx(1, rel=1e-4)
