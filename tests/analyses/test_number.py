"""Numbers held against limits, and findings of results."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.number import Number, number_of, passing
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(-0.1, 0.1))
def test_no_claim_where_the_interval_holds_the_limit(value, error, limit, bias):
    number = Number(value, error, 2.0, bias)
    low, high = value - bias - 2 * error, value - bias + 2 * error
    said = number.passes(limit)
    assert said == ("yes" if low >= limit else "no" if high < limit else "about")


@given(st.integers(0, 2**32 - 1))
def test_arrays_pass_as_each_of_their_numbers_does(seed):
    random = np.random.default_rng(seed)
    value, error, bias = random.choice([-0.2, 0.1, 0.3, np.nan], (3, 2, 5))
    made = Result(
        analysis="sinks",
        params={},
        values={"sink": value},
        errors={"sink": np.abs(error)},
        biases={"sink": bias},
        axes={"sink": ("layer", "head")},
        units={"sink": "share"},
    )
    sure, against = passing(made, "sink", 0.3)
    for place in np.ndindex(value.shape):
        said = number_of(made, "sink", *place).surely(0.3)
        assert (said == "yes", said == "no") == (sure[place], against[place])


def test_a_number_without_a_known_error_passes_no_limit_for_certain():
    assert Number(0.9, math.nan, 2.0).passes(0.3) == "about"
    assert Number(0.1, math.nan, 2.0).passes(0.3) == "no"
    assert Number(0.1, math.nan, 2.0).surely(0.3) == "about"
    assert Number(math.nan, 0.1, 2.0).passes(0.3) is None


def test_number_of_a_result():
    made = Result(
        analysis="etc",
        params={},
        values={"etc": np.array([[1.0, 2.0, 3.0]]), "exact": np.array([[4.0, 5.0, 6.0]])},
        errors={"etc": np.array([[0.1, 0.2, 0.3]])},
        biases={"etc": np.array([[0.01, 0.02, 0.03]])},
        axes={"etc": ("layer", "head"), "exact": ("layer", "head")},
        units={"etc": "tokens", "exact": "tokens"},
        provenance={"errors": "queries", "groups": 5},
    )
    assert number_of(made, "etc", 0, 1) == Number(2.0, 0.2, made.interval, 0.02)
    assert number_of(made, "exact", 0, 2) == Number(6.0, 0.0, made.interval, 0.0)


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
