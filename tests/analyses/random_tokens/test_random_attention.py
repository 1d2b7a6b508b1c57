"""Attention to random tokens: patterns, trends and norms, by plain loops and by calculation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from poskernel_core.analyses.random_tokens.experiment.random_rows import (
    exponents,
    rank_correlations,
    slope_weights,
)
from poskernel_core.analyses.random_tokens.spec import RandomAttention
from poskernel_core.data.layouts import random_layout
from tests.analyses.induction.test_recency import CASES, drawn, switched
from tests.analyses.interventions.test_switches import agree, perform, subject_of
from tests.support import builders, oracles
from tests.support import oracles_random as oracle
from tests.support.builders import AVERAGED_WIDTH

pytestmark = pytest.mark.usefixtures("few_measured")
SAMPLES, LENGTH = 11, 9
POOL = builders.VOCABULARY - 1


@pytest.fixture(scope="module")
def averages(tmp_path_factory):
    return builders.averages(tmp_path_factory.mktemp("averages"))


def spearman(row, n, first):
    """Rank correlation of a row with the keys from `first` to before the query, and its p-value."""
    if n - first < 3:
        return math.nan, math.nan
    rank, p_value = stats.spearmanr(range(first, n), row[first:n])
    return rank, p_value if n - first >= 10 else math.nan


@pytest.mark.parametrize(("case", "first"), [("plain", 0), ("uniform", 4), ("flat and more", 2)])
def test_every_value(model_dirs, case, first):
    path, (start, changed, switches) = model_dirs["gpt2"], CASES[case]
    params = {k: v for k, v in changed.items() if k not in ("first", "candidates")}
    edits, _ = switched(path, start, params, switches, SAMPLES)
    seen = [oracle.see(path, ids, edits) for ids in drawn(random_layout(LENGTH, start), 0, SAMPLES)]

    subject = subject_of(path, start=start)
    params |= {} if first == 2 else {"trend_from": first}
    result = perform(RandomAttention, subject, samples=SAMPLES, length=LENGTH, **params)

    agree(result, "pattern", [one.patterns for one in seen], atol=2e-5)
    slopes = [
        np.array([[oracle.slopes(head, first) for head in layer] for layer in one.patterns])
        for one in seen
    ]
    agree(result, "slope", slopes, atol=1e-5)
    check_norms(result, [one.squares for one in seen])
    pattern = oracle.mean_and_error([one.patterns for one in seen])[0]
    uniform = [] if changed.get("ablation") is None else [(0, 1), (1, 4)]
    check_ranks(result, pattern, uniform, first)


def check_norms(result, squares):
    """Norms with errors by the delta method, exponents with those of a jackknife."""
    mean, error = oracle.mean_and_error(squares)
    np.testing.assert_allclose(result.values["norm"], np.sqrt(mean), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(result.errors["norm"][mean == 0], 0)
    some = mean > 0
    np.testing.assert_allclose(
        result.errors["norm"][some], error[some] / 2 / np.sqrt(mean[some]), atol=1e-5
    )
    for head in range(5):

        def exponent(some, head=head):
            return oracle.exponent(oracle.root_norms([squares[i] for i in some])[head])

        found = result.values["norm_exponent"][head], result.errors["norm_exponent"][head]
        expected = exponent(range(SAMPLES)), oracles.jackknife(SAMPLES, exponent)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def check_ranks(result, pattern, uniform, first):
    """Rank correlations of the mean rows with their p-values, by SciPy; none of uniform rows."""
    for layer, head, n in np.ndindex(pattern.shape[:-1]):
        names = ("rank_correlation", "p_value")
        found = [float(result.values[name][layer, head, n]) for name in names]
        if (layer, head) in uniform:
            assert np.isnan(found).all()
        else:
            expected = list(spearman(pattern[layer, head, n].tolist(), n, first))
            assert expected == pytest.approx(found, abs=1e-6, nan_ok=True)


def all_seen(length):
    """The number of keys that each query sees without a window."""
    return np.arange(1, length + 1)


def test_trends_in_a_window():
    """Of the keys 0 to 5 the query 6 sees the last three and itself: keys 3, 4, 5 alone count."""
    row = np.array([9.0, 9.0, 9.0, 0.1, 0.5, 0.3, 9.0])
    seen = np.minimum(all_seen(7), 4)
    correlation, _ = rank_correlations(np.tile(row, (7, 1)), seen, 1)
    assert 0.1 == pytest.approx(slope_weights(seen, 1)[6] @ row)
    assert 0.5 == pytest.approx(correlation[6])
    assert np.isnan(slope_weights(seen - 1, 1)).all()


@given(
    st.integers(4, 13),
    st.integers(0, 5),
    st.lists(st.integers(0, 5), min_size=13, max_size=13),
    st.floats(0.1, 7),
    st.floats(-3, 3),
)
def test_trends(length, first, whole, factor, step):
    row, n = np.array(whole[:length]) + 0.0, length - 1
    pattern = np.zeros((length, length))
    pattern[-1] = row
    other = factor * pattern + step
    other[-1, :first], other[-1, n] = -99.0, 99.0
    seen, both = all_seen(length), (pattern, other)
    slope, scaled = ((slope_weights(seen, first)[-1] @ rows[-1]) for rows in both)
    (rank, p), (same, _) = ([x[-1] for x in rank_correlations(y, seen, first)] for y in both)
    if n - first < 3:
        assert np.isnan([slope, rank, p]).all()
        return
    line = stats.linregress(range(first, n), row[first:n])
    assert line.slope == pytest.approx(slope, abs=1e-9)
    assert factor * slope == pytest.approx(scaled, abs=1e-9)
    if len(set(row[first:n])) > 1:
        expected = spearman(row, n, first)
        assert expected == pytest.approx((rank, p), abs=1e-7, nan_ok=True)
        assert rank == pytest.approx(same)
    else:
        assert np.isnan([rank, p]).all()


@given(st.floats(-3, 3), st.floats(0.01, 100), st.integers(3, 41))
def test_exponent_of_a_power(power, factor, length):
    """Of a power of the number of visible tokens; whatever stands at position 0."""
    norms = factor * np.arange(1, length + 1.0) ** power
    norms[0] = 1e4
    rows = np.stack([norms, np.where(np.arange(length) == 2, 0, norms)])
    found = exponents(rows, all_seen(length))
    assert [power, math.nan] == pytest.approx(found.tolist(), nan_ok=True, abs=1e-9)


def averaged_norms(length):
    """Root mean square norm of the mean of the first tokens, drawn without replacement."""
    tokens = range(1, length + 1)
    return [math.sqrt(AVERAGED_WIDTH / m * (1 - (m - 1) / (POOL - 1))) for m in tokens]


def test_norms_of_averages(averages):
    """A uniform head over values of mean zero: the root of the number of tokens, by calculation."""
    subject = subject_of(averages, start=False)

    result = perform(RandomAttention, subject, samples=500, length=13)

    norm, error = result.values["norm"], result.errors["norm"]
    truth = averaged_norms(13)
    assert (np.abs(norm[0] - truth) < 4 * error[0] + 1e-5).all()
    np.testing.assert_allclose(norm[1], math.sqrt(AVERAGED_WIDTH), rtol=1e-4)
    exponent, spread = result.values["norm_exponent"], result.errors["norm_exponent"]
    assert oracle.exponent(truth) == pytest.approx(exponent[0], abs=4 * spread[0])
    assert 0.001 < spread[0] < 0.03
    assert 0 == pytest.approx(exponent[1], abs=1e-4)
    even = 1 / np.arange(1, 14)[:, None] * np.tri(13)
    np.testing.assert_allclose(result.values["pattern"][0, 0], even, atol=1e-6)
    np.testing.assert_allclose(result.values["pattern"][0, 1], np.eye(13), atol=1e-6)


def test_exponent_in_a_window(model_dirs):
    """With a window of 7, position 20 sees 7 tokens, not 21: the definition says visible tokens."""
    result = perform(RandomAttention, subject_of(model_dirs["mistral"]), samples=13, length=23)
    visible = np.log([min(n + 1, 7) for n in range(1, 23)])
    for head in range(5):
        norms = np.log(result.values["norm"][head, 1:])
        expected = oracle.line_slope(visible.tolist(), norms.tolist())
        assert expected == pytest.approx(result.values["norm_exponent"][head], abs=1e-6)
