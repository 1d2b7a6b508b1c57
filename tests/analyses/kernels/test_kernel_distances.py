"""Distances between kernels, and the standard errors: the oracles, and algebraic properties."""

import math
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses import find
from poskernel_core.analyses.kernels import formulas as kernels
from poskernel_core.common import arithmetic
from poskernel_core.common.attention import ScoreRule, Slopes
from tests.analyses.kernels.test_kernels import SEEDS, kernels_of
from tests.support import builders, oracles
from tests.support.oracles_groups import query_variation
from tests.support.passes import loaded
from tests.support.widths import PLACES, arithmetic_in, in_64_bits

few = settings(max_examples=23)

POSITIONS = np.array([1, 3, 6, 11])


@few
@given(SEEDS, st.integers(1, 23), st.integers(1, 11))
def test_query_variation(seed, samples, count):
    found = kernels_of(seed, samples=samples)
    count = min(count, samples)
    places = range(samples // count)

    each = [
        [[head[place * count + group] for place in places] for group in range(count)]
        for head in found.tolist()
    ]
    expected = [query_variation(head) if count > 1 else math.nan for head in each]

    np.testing.assert_allclose(kernels.query_variation(found, count), expected, atol=1e-6)


def test_queries_of_one_group_are_no_pair():
    """Of two groups that never differ from each other, what differs within them does not count.

    Queries that share no key give 1.
    """
    by_place = np.repeat(np.eye(3), 2, axis=0)[None]  # samples 0 and 1 are the first of each group
    np.testing.assert_allclose(kernels.query_variation(by_place, 2), [0.0], atol=1e-7)
    np.testing.assert_allclose(kernels.query_variation(np.eye(5)[None], 5), [1.0], atol=1e-7)
    for groups in (0, 1):
        assert np.isnan(kernels.query_variation(by_place, groups)).all()


@pytest.fixture(params=PLACES)
def somewhere(request):
    """Arithmetic runs on NumPy's or on torch's arrays."""
    with arithmetic_in(request.param):
        yield


@pytest.mark.parametrize("place", [*PLACES, "64 bits"])
@few
@given(SEEDS, st.sampled_from([1, 2, 3, 6]), st.sampled_from([None, 1.3]), st.booleans())
def test_mean_kernels(place, seed, shared, cap, biased):
    heads, draw = 6, np.random.default_rng(seed).standard_normal
    queries, keys = draw((heads, 8, 5)), draw((heads // shared, 7, 5))
    slopes = Slopes(tuple(2.0 ** -np.arange(heads))) if biased else None
    rule = ScoreRule(0.7, cap=cap, slopes=slopes)

    with arithmetic_in(place) as tolerance:
        mean, variation = kernels.mean_kernels(queries, keys, rule, 3, 4)

    for head in range(heads):
        rows = []
        for query in queries[head]:
            scores = {}
            for place, key in enumerate(keys[head // shared]):
                score = 0.7 * float(query @ key)
                score = score if cap is None else cap * math.tanh(score / cap)
                scores[place] = score - (2.0**-head * (6 - place) if biased else 0)
            rows.append(oracles.softmax_at(scores, 7))
        np.testing.assert_allclose(mean[head], oracles.mean_row(rows), atol=tolerance)
        groups = [[rows[group], rows[group + 4]] for group in range(4)]
        assert query_variation(groups) == pytest.approx(variation[head], abs=1e-6)


@pytest.fixture
def failing():
    """Arithmetic runs on a device that fails; the fixture is a list with the failure."""
    found = []

    def place(array):
        raise found[0]

    arithmetic.run_on(place)
    yield found
    arithmetic.run_on(None)


def test_a_device_without_memory(failing):
    """Arithmetic goes on in NumPy; any other failure is told."""
    given = np.ones((6, 3, 5)), np.ones((2, 7, 5)), ScoreRule(0.7), 3, 3
    failing.append(torch.OutOfMemoryError("full"))
    mean, variation = kernels.mean_kernels(*given)
    np.testing.assert_allclose(mean, np.full((6, 7), 1 / 7), rtol=1e-6)
    np.testing.assert_allclose(variation, np.zeros(6), atol=1e-6)

    for words in ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when ...", "CUDA error: out of memory"):
        failing[0] = RuntimeError(words)
        np.testing.assert_array_equal(mean, kernels.mean_kernels(*given)[0])

    failing[0] = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        kernels.mean_kernels(*given)


def test_a_change_waits_for_what_runs_there(monkeypatch):
    """And what has waited for the device meanwhile runs where arithmetic runs then."""
    began, go_on, given = Event(), Event(), np.ones(3)

    def place(array):
        began.set()
        assert go_on.wait(60)
        return torch.tensor(array)

    arithmetic.run_on(place)
    with ThreadPoolExecutor(3) as pool, monkeypatch.context() as patch:
        there = pool.submit(arithmetic.carry_out, type, given)
        assert began.wait(60)
        waiting = pool.submit(arithmetic.carry_out, type, given)
        changed = pool.submit(arithmetic.run_on, None)
        early = wait([changed, waiting], 0.2).done
        patch.setattr(arithmetic, "_there", None)  # whichever of the two comes first
        go_on.set()
        found = [each.result(60) for each in (there, waiting, changed)]
    arithmetic.run_on(None)
    assert not early
    assert [torch.Tensor, np.ndarray, None] == found


@pytest.mark.usefixtures("somewhere")
def test_32_bits_are_enough(model_dirs, monkeypatch):
    """What is shown, corrected and with its error, is that of 64 bits to a ten-thousandth of it."""
    model, ids = loaded(str(model_dirs["llama"])), builders.random_ids(31, 29, seed=3)
    view = pk.run_pass(model, ids.numpy(), positions=(3, 11, 28), queries_per_position=31)
    question = find("etc")
    found = question.answer({"main": view}, question.params(skip=2), lambda done, total: None)
    monkeypatch.setattr(arithmetic, "carry_out", in_64_bits)

    wide = question.answer({"main": view}, question.params(skip=2), lambda done, total: None)

    differ = False
    for name, error in wide.errors.items():
        np.testing.assert_allclose(found.errors[name], error, rtol=1e-4, atol=1e-7)
        apart = np.abs(found.values[name] - wide.values[name])
        there = np.isfinite(error)
        assert (apart[there] <= 1e-4 * error[there] + 1e-6).all()
        differ |= bool(apart[there].any())
    assert differ


def grid(seed, skip):
    """Random mean kernels of two heads at `POSITIONS`, [head, query, key], zero where unseen."""
    found = np.zeros((2, len(POSITIONS), 13))
    for place, n in enumerate(POSITIONS):
        if n >= skip:
            rows = kernels_of(seed + place, heads=2, samples=1, keys=n + 1 - skip)
            found[:, place, skip : n + 1] = rows[:, 0]
    return found


@few
@given(SEEDS, st.sampled_from([0, 2, 4]))
def test_aligned_distance(seed, skip):
    rows = grid(seed, skip)

    found = kernels.aligned_distance(kernels.by_offset(rows, POSITIONS), POSITIONS, skip)

    for head in range(2):
        for a, n in enumerate(POSITIONS.tolist()):
            for b, m in enumerate(POSITIONS.tolist()):
                if min(n, m) < skip:
                    assert np.isnan(found[head, a, b])
                    continue
                pair = rows[head, a].tolist(), n, rows[head, b].tolist(), m
                expected = oracles.aligned_distance(*pair, skip)
                assert expected == pytest.approx(found[head, a, b], abs=1e-9)


@pytest.mark.parametrize(
    ("n", "skip", "window", "expected"),
    [(10, 0, None, 0), (10, 4, None, 4), (10, 4, 5, 6), (10, 8, 5, 8), (2, 0, 7, 0), (3, 4, 7, 4)],
)
def test_first_visible(n, skip, window, expected):
    assert expected == ScoreRule(1.0, window).first_visible(n, skip)
