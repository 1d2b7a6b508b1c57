"""Lists and counts of heads: by hand, by scipy, and on heads of which the truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from poskernel_core.analyses.discoveries import RATE, Condition, benjamini_hochberg, discovered
from poskernel_core.common.jackknife import interval, upper_tail
from tests.support.made_findings import made

GROUPS, LIMIT = 7, 0.3
WIDTH = interval(GROUPS)


def heads(values, error=1.0):
    """A share of attention of heads in one layer, each with that error."""
    result = made("sinks", {"sink": [values]}, {"sink": error}, params={"threshold": LIMIT})
    result.provenance.update(errors="documents", groups=GROUPS)
    return result


def passing_by(errors):
    """Heads that lie so many errors above the limit."""
    return heads([LIMIT + 0.01 * each for each in errors], 0.01)


def test_by_hand():
    """Of four heads, p is 0.0003, 0.01, 0.02 and 0.5: at most 0.0125, 0.025, 0.0375 and 0.05."""
    p = np.array([0.02, 0.0003, 0.5, np.nan, 0.01])
    assert [True, True, False, False, True] == benjamini_hochberg(p).tolist()
    assert [False, False] == benjamini_hochberg(np.array([0.04, 0.06])).tolist()
    assert [True, True] == benjamini_hochberg(np.array([0.04, 0.05])).tolist()
    assert [] == benjamini_hochberg(np.array([])).tolist()


def test_one_of_two_hundred_that_passes_alone_is_not_listed():
    """Three errors above the limit are enough for a head alone; among two hundred it is open."""
    assert 1 == discovered(passing_by([3.0]), Condition("sink", LIMIT)).count
    among = discovered(passing_by([3.0] + [-9.0] * 199), Condition("sink", LIMIT))
    assert (0, " (1 more can't be told)") == (among.count, among.beside)
    sure = discovered(passing_by([40.0] + [-9.0] * 199), Condition("sink", LIMIT))
    assert (1, "") == (sure.count, sure.beside)


def test_many_true_heads_do_not_carry_one_beyond_its_own_interval():
    found = discovered(passing_by([9.0] * 19 + [2.0]), Condition("sink", LIMIT))
    assert benjamini_hochberg(upper_tail(np.array([9.0] * 19 + [2.0]), GROUPS - 1)).all()
    assert (19, " (1 more can't be told)") == (found.count, found.beside)


def test_sides_and_several_conditions():
    result = passing_by([9.0, -9.0, 0.0, np.nan])
    for side, told in (("reaches", "1000"), ("below", "0100"), ("apart", "1100")):
        found = discovered(result, Condition("sink", LIMIT, side))
        assert told == "".join(str(int(each)) for each in found.sure[0])
    both = discovered(
        result, Condition("sink", LIMIT - 0.2, "reaches"), Condition("sink", LIMIT, "below")
    )
    assert ([False, True, False, False], 1) == (both.sure[0].tolist(), int(both.open.sum()))


def test_of_several_conditions_the_least_sure_counts():
    """Far above one limit, three errors above the other: that is open among two hundred."""
    result = passing_by([3.0] + [-9.0] * 199)
    found = discovered(result, Condition("sink", LIMIT - 0.2), Condition("sink", LIMIT))
    assert (0, 1) == (found.count, int(found.open.sum()))


def test_a_difference_on_either_side_is_twice_as_likely_by_chance():
    """Three errors: p is 0.012 on one side, 0.024 on both; the smallest of four needs 0.0125."""
    result = passing_by([3.0, 0.0, 0.0, 0.0])
    assert 1 == discovered(result, Condition("sink", LIMIT)).count
    assert 0 == discovered(result, Condition("sink", LIMIT, "apart")).count


def test_exact_numbers_and_numbers_without_a_known_error():
    exact = made("sinks", {"sink": [[0.31, 0.3, 0.29]]}, params={"threshold": LIMIT})
    assert [True, True, False] == discovered(exact, Condition("sink", LIMIT)).sure[0].tolist()
    assert 0 == discovered(exact, Condition("sink", LIMIT)).open.sum()
    unknown = discovered(heads([0.9, 0.1], np.nan), Condition("sink", LIMIT))
    assert (0, 2) == (unknown.count, int(unknown.open.sum()))


@pytest.mark.parametrize("degrees", [1, 2, 3, 6, 9, 10, 49])
@given(t=st.floats(-60, 60))
def test_students_tail(degrees, t):
    assert stats.t.sf(t, degrees) == pytest.approx(
        float(upper_tail(np.array(t), degrees)), abs=1e-9
    )


def test_the_normal_tail():
    t = np.linspace(-5, 5, 41)
    assert stats.norm.sf(t) == pytest.approx(upper_tail(t, -1), abs=1e-12)


@given(st.lists(st.floats(-12, 12), min_size=1, max_size=40))
def test_as_scipy_controls_false_discoveries(errors):
    """Benjamini and Hochberg's adjusted p-values are at most the rate, and the head passes."""
    found = discovered(passing_by(errors), Condition("sink", LIMIT))
    value, low, _ = passing_by(errors).estimate_of("sink")
    p = stats.t.sf(WIDTH * (value - LIMIT) / (value - low), GROUPS - 1)
    adjusted = stats.false_discovery_control(p.ravel()).reshape(p.shape)
    assert ((adjusted <= RATE) & (low >= LIMIT)).tolist() == found.sure.tolist()
    assert not (found.sure & found.open).any()


def test_of_a_list_one_in_twenty_is_wrong():
    """Of 269 heads 5 are above the limit; by their intervals alone, a third of a list is wrong."""
    random, wrong, alone = np.random.default_rng(60), [], []
    true = np.arange(269) < 5
    for _ in range(300):
        normal = random.standard_normal((GROUPS, 269)) + np.where(true, 15.0, 0.0)
        mean, error = normal.mean(axis=0), normal.std(axis=0, ddof=1) / np.sqrt(GROUPS)
        result = heads(LIMIT + mean, error)
        sure = discovered(result, Condition("sink", LIMIT)).sure[0]
        passes = mean - WIDTH * error >= 0
        wrong.append((sure & ~true).sum() / max(1, sure.sum()))
        alone.append((passes & ~true).sum() / max(1, passes.sum()))
    assert np.mean(wrong) <= RATE + 3 * np.std(wrong) / np.sqrt(len(wrong))
    assert np.mean(alone) > 0.3
