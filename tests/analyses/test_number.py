"""Numbers held against limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.claims import (
    Number,
    below_the_line,
    heads_at,
    number_of,
    of_all,
    passing,
)
from poskernel_core.analyses.patching.views import sizes_so_far
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result, estimates, outputs
from poskernel_core.common.rounding import brief
from tests.support.made_findings import made

DECLARED = (
    *estimates("sink [layer head]", "share", "a share", bounds=(0, 1)),
    *outputs("exact [layer head]", "share", "another"),
)


def result(value, error, bias):
    raw = Result(
        analysis="sinks",
        params={},
        values={"sink": np.asarray(value), "exact": np.asarray(value)},
        errors={"sink": np.abs(error)},
        biases={"sink": np.asarray(bias)},
        axes=dict.fromkeys(("sink", "exact"), ("layer", "head")),
        units=dict.fromkeys(("sink", "exact"), "share"),
        provenance={"errors": "queries", "groups": 5},
    )
    return raw.corrected(DECLARED)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1))
def test_no_claim_where_the_interval_holds_the_limit(value, reach, limit):
    number = Number.within(value, reach)
    said = number.passes(limit)
    low, high = value - reach, value + reach
    assert said == ("yes" if low >= limit else "no" if high < limit else "about")


@given(st.integers(0, 2**32 - 1))
def test_arrays_pass_as_each_of_their_numbers_does(seed):
    random = np.random.default_rng(seed)
    made = result(*random.choice([0.0, 0.1, 0.3, np.nan], (3, 2, 5)))
    for name in ("sink", "exact"):
        sure, against = passing(made, name, 0.3)
        for place in np.ndindex(sure.shape):
            said = number_of(made, name, *place).passes(0.3)
            assert (said == "yes", said == "no") == (sure[place], against[place])


def test_farther_ends():
    made = result([[0.5]], [[0.04]], [[0.0]])  # 2.776 errors: 0.389 to 0.611
    for stretched, expected in ((0.98, True), (1.02, False)):
        assert expected == bool(passing(made, "sink", 0.39, stretched)[0])


def test_a_number_without_a_known_error_passes_no_limit():
    unknown = [Number(value, math.nan, math.nan) for value in (0.9, 0.1, math.nan)]
    assert ["about", "about", None] == [each.passes(0.3) for each in unknown]


def test_number_of_a_result():
    made = result([[0.1, 0.2, 0.3]], [[0.01, 0.02, 0.03]], [[0.01, 0.02, 0.03]])
    number, exact = number_of(made, "sink", 0, 1), number_of(made, "exact", 0, 2)
    assert (0.18, 0.18 - 2.776445 * 0.02, 0.18 + 2.776445 * 0.02) == pytest.approx(
        (number.value, number.low, number.high)
    )
    assert Number.within(0.3, 0.0) == exact


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8712, "0.87"),
        (-0.305, "−0.30"),
        (0.00123, "0.00123"),
        (12.345, "12.3"),
        (1234.5, "1,234"),
        (0, "0"),
        (1, "1"),
        (math.nan, "–"),
    ],
)
def test_brief_numbers_have_three_digits_at_most(value, text):
    assert brief(value) == text


@pytest.mark.parametrize(
    ("value", "reach", "text"),
    [(81.2, 28.0, "81"), (0.00284, 0.008, "0.0028"), (0.0284, 0.0008, "0.03"), (397.4, 240, "400"),
     (0.87, 0.0, "0.87"), (0.87, math.nan, "0.87"), (1.2345, 0.02, "1.23")],
)  # fmt: skip
def test_a_number_in_a_sentence_ends_where_its_error_does(value, reach, text):
    """The error is half of the half width, with two digits; three digits are printed at most."""
    assert text == str(Number.within(value, reach))


@pytest.mark.parametrize("name", ["sink", "exact"])
def test_a_count_says_nothing_of_chance(name):
    """How many of the heads are there by chance depends on how far they are above the limit."""
    values = np.full((7, 11), 0.9)
    known = result(values, 0.01 * values, 0 * values)
    assert heads_at(known, name, "sink", 0.3).startswith(
        "In 77 of 77 heads the sink is 0.3 or more;"
    )
    assert "77 of 270 heads" == of_all(77, 270)


def of_heads(value, reach):
    value, reach = np.asarray(value, float), np.asarray(reach, float)
    return Estimate(value, value - reach, value + reach)


def test_heads_below_the_line_by_hand():
    """0.50 ± 0.05 and 0.44 ± 0.05 differ by 0.06 ± 0.07; 0.40 ± 0.05 is farther."""
    every = of_heads([[0.9, 0.44], [math.nan, 0.5], [0.1, 0.4]], 0.05)
    heads = [(0, 0), (1, 1), (0, 1), (2, 1), (2, 0), (1, 0)]
    assert "1 more can't be told from L1H1" == below_the_line(every, heads, 2)
    assert "1 more can't be told from L0H1" == below_the_line(every, heads, 3)
    for count in (1, 4, 5, 6, 7):  # sure of all below, or nothing is left out
        assert "" == below_the_line(every, heads, count)
    assert "" == below_the_line(every, [], 2)
    assert "" == below_the_line(of_heads(every.value, math.nan), heads, 2)  # a run without groups


HEADS = st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 0.3)), min_size=6, max_size=6)


@given(HEADS, st.integers(1, 6))
def test_heads_below_the_line(numbers, count):
    """As many as there are whose difference to the last listed may be 0; signs matter not."""
    value, reach = (np.reshape(part, (2, 3)) for part in zip(*numbers, strict=True))
    order = [divmod(int(at), 3) for at in np.argsort(-value, axis=None, kind="stable")]
    last = order[count - 1]
    same = [
        head for head in order[count:]
        if value[last] - value[head] <= math.hypot(reach[last], reach[head])
    ]  # fmt: skip
    said = below_the_line(of_heads(value, reach), order, count)
    assert str(len(same)) == (said.split()[0] if said else "0")
    assert said == below_the_line(of_heads(-value, reach), order, count)


def test_sizes_of_effects():
    """An effect, or where it is not known its estimate, is turned about 0 with its interval."""
    effect, attribution = np.array([[0.5, -0.25, math.nan]]), np.array([[9.0, 9.0, -0.125]])
    found = made(
        "patch-heads",
        {"effect": effect, "attribution": attribution},
        lows={"effect": effect - 0.25, "attribution": attribution - 0.5},
        highs={"effect": effect + 0.125, "attribution": attribution + 0.25},
    )
    value, low, high = sizes_so_far(found)
    assert [[0.5, 0.25, 0.125]] == value.tolist()
    assert [[0.25, 0.125, -0.125]] == low.tolist()
    assert [[0.625, 0.5, 0.625]] == high.tolist()
