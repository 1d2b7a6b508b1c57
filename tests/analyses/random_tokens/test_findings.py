"""What is found about attention to random tokens."""

from hypothesis import given

from tests.support.made_findings import found, uncertain

QUESTION = "random-attention"
PLACE = {"layer": 1, "head": 0, "query": 49}


def test_the_slope_of_one_row():
    assert (
        "On random tokens, L1H0 gives less to recent keys: from position 49 its attention changes "
        "by −0.01 per key, where a uniform row has 0.02 everywhere."
    ) == found(QUESTION, {"slope": (-0.01, 0.001)}, **PLACE)


def test_the_last_row_counts_if_there_are_several():
    assert (
        "On random tokens, L1H0 gives more to recent keys: from position 1 its attention changes "
        "by 0.20 per key, where a uniform row has 0.50 everywhere."
    ) == found(QUESTION, {"slope": ([-0.1, 0.2], 0.01)}, layer=1, head=0)
    slopes = [[[0, 0.1], [0, -0.1], [0, 0.1]]]
    assert (
        "On random tokens, 2 of 3 heads certainly give more to recent keys from position 1, and 1 "
        "less."
    ) == found(QUESTION, {"slope": (slopes, 0.01)})


def test_norms_that_fall():
    assert (
        "In 2 of 3 heads of layer 0 the norm of the output certainly falls with position "
        "(exponents from −0.50 to −0.20; uniform attention: about −0.50)."
    ) == found(QUESTION, {"norm_exponent": ([-0.5, 0.1, -0.2], 0.01)})
    assert (
        "The norm of the output of L0H2 falls with position: its exponent is −0.20 (uniform "
        "attention: about −0.50)."
    ) == found(QUESTION, {"norm_exponent": (-0.2, 0.01)}, head_of_layer_0=2)


@given(uncertain())
def test_no_trend_where_the_interval_holds_zero(number):
    value, error = number
    assert "" == found(QUESTION, {"slope": number}, **PLACE)
    assert "" == found(QUESTION, {"slope": ([[[value]]], error)})
    assert "" == found(QUESTION, {"norm_exponent": ([value], error)})
    assert "" == found(QUESTION, {"norm_exponent": number}, head_of_layer_0=0)
