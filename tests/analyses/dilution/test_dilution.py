"""Dilution: slopes by hand and by loops, and heads whose reach is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses.dilution.formulas import log_spaced, slopes
from tests.support import builders, oracles
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.truth import truth_of

SEEDS = st.integers(0, 2**32 - 1)
POSITIONS = (3, 9, 11, 13, 17, 23, 31, 36)


def test_slope_by_hand():
    """Through (0, 1), (1, 2), (2, 6): 5 / 2; the last two give none."""
    x, y = np.array([0.0, 1, 2]), np.array([[1.0, 2, 6], [3, 3, 3]])
    assert [2.5, 0] == slopes(x, y).tolist()
    assert np.isnan(slopes(x[1:], y[:, 1:])).all()
    assert np.isnan(slopes(np.ones(3), y)).all()


def test_positions_by_hand():
    """Of 10, 20, ..., 80, four on a log axis: 10, 20, 40, 80; a position counts once."""
    tens = np.arange(10, 81, 10)
    assert [10, 20, 40, 80] == log_spaced(tens, 4).tolist()
    assert [10, 20, 30, 40, 60, 80] == log_spaced(tens, 8).tolist()


@given(SEEDS, st.floats(-2, 2), st.floats(0.1, 5))
def test_slopes_of_powers(seed, power, factor):
    """Of `factor * keys ** power` the slope is the power, and slopes of sums add up."""
    x = np.random.default_rng(seed).uniform(1, 7, size=5)
    noise = np.random.default_rng(seed + 1).normal(size=(2, 5))
    assert power == pytest.approx(slopes(x, power * x[None] + math.log(factor))[0], abs=1e-9)
    assert slopes(x, noise.sum(axis=0)[None])[0] == pytest.approx(slopes(x, noise).sum(), abs=1e-9)
    expected = [oracles.slope(x.tolist(), row) for row in noise.tolist()]
    assert expected == pytest.approx(slopes(x, noise).tolist(), abs=1e-9)


@pytest.mark.parametrize(("name", "skip"), [("gpt2", 2), ("llama", 0), ("mistral", 3)])
def test_every_head(model_dirs, name, skip):
    """Slopes and errors of plain transformers' queries and keys, by loops."""
    windows = builders.random_ids(20, 37).numpy()
    truth, window = truth_of(model_dirs[name], windows), 7 if name == "mistral" else None
    gathered = pk.run_pass(
        loaded(model_dirs[name]), windows, positions=POSITIONS, start_token=False
    )
    found = analyse("dilution", gathered, skip=skip, points=9)

    used = [n for n in POSITIONS if n >= skip + 7]
    assert used == found.coordinates["query"].tolist()
    seen = [n + 1 - skip if window is None else min(window, n + 1 - skip) for n in used]
    assert [seen] * 3 == found.values["visible_keys"].tolist()
    assert [used[0], used[-1]] == found.provenance["query_range"]
    groups = windows.shape[0] // 10  # a stretch of windows is a group
    worst = 0.0
    for layer, head in [(0, 1), (1, 4), (2, 2)]:
        scale = 1 / math.sqrt(truth.queries[layer].shape[-1])
        kv = head * truth.keys[layer].shape[1] // truth.queries[layer].shape[1]

        def values(kept, layer=layer, head=head, kv=kv, scale=scale):
            means = truth.keys[layer][kept, kv].mean(axis=0).tolist()
            queries = truth.queries[layer][kept, head]
            return [
                oracles.etc(
                    oracles.mean_kernel(queries[:, n].tolist(), means, scale, n, n + 1 - keys)
                )
                for n, keys in zip(used, seen, strict=True)
            ]

        etc = values(list(range(20)))
        worst = max(worst, np.abs(found.values["etc"][layer, head] - etc).max())
        if window is not None:
            assert np.isnan(found.values["alpha"][layer, head])
            assert "does not vary" in found.texts["no_slope"][layer]
            continue
        x, half = [math.log(keys) for keys in seen], len(used) // 2
        left = [values([t for t in range(20) if t // groups != out]) for out in range(10)]
        every = [[math.log(number) for number in row] for row in (etc, *left)]
        for value, start in (("alpha", 0), ("alpha_upper", half)):
            whole, *out = (oracles.slope(x[start:], row[start:]) for row in every)
            assert whole == pytest.approx(found.values[value][layer, head], abs=1e-5)
            error = math.sqrt(9 * np.var(out))
            assert error == pytest.approx(found.errors[value][layer, head], abs=1e-5)
        assert found.texts["no_slope"][layer] == ""
    assert worst < 1e-5


def test_known_heads(tmp_path):
    """Looking two back keeps its reach, a uniform head spreads out, and decay does so at first."""
    path = builders.look_back(tmp_path / "m", 2, 37, 5.0)
    ids = builders.random_ids(10, 37).numpy()
    found = analyse("dilution", pk.run_pass(loaded(path), ids, positions=POSITIONS), skip=0)

    alpha, upper = (found.values[name] for name in ("alpha", "alpha_upper"))
    np.testing.assert_allclose([alpha[0, 0], upper[0, 0]], 0, atol=0.01)
    np.testing.assert_allclose([alpha[0, 1], *alpha[1]], 1, atol=1e-5)
    assert 0 < upper[0, 2] < alpha[0, 2] - 0.1 < 0.5


@pytest.mark.parametrize(("positions", "skip"), [((36,), 4), ((9, 36), 0), ((3, 5), 30)])
def test_too_few_positions(model_dirs, positions, skip):
    """Without three positions there is no slope, and the reason is told."""
    windows = builders.random_ids(10, 37).numpy()
    found = analyse(
        "dilution", pk.run_pass(loaded(model_dirs["gpt2"]), windows, positions=positions), skip=skip
    )
    assert np.isnan(found.values["alpha"]).all()
    assert {"fewer than three query positions were recorded"} == {*found.texts["no_slope"]}
