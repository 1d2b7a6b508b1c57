"""What is said of sources of position, and what is not."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import found, uncertain

NAMES = {"source": ["positional embedding", "L0H3", "MLP 0"]}
PARAMS = {"head": "l1h2"}


def head(shares, errors, noise=0.1, position=0.8, analysis="head-position-sources", **chosen):
    numbers = {"share": (shares, errors), "noise": (noise, 0.0), "position_share": (position, 0.0)}
    return found(analysis, numbers, {} if chosen else PARAMS, NAMES, **chosen)


def test_one_source():
    sentence = head([0.1, 0.1, 0.8], 0.01)
    assert sentence == "Most of L1H2's positional score comes from MLP 0 (0.80)."
    other = head([0.8, 0.1, 0.1], 0.01, analysis="position-sources", layer=3, head=4)
    assert other == "Most of L3H4's positional score comes from the positional embedding (0.80)."


def test_the_largest_of_several():
    """Two sources above a half, with others against them: the larger one is called the largest."""
    assert head([-0.6, 0.9, 0.7], 0.01) == (
        "The largest share of L1H2's positional score, 0.90, comes from L0H3."
    )
    assert head([0.2, 0.3, 0.5], [0.01, 0.01, 0.02]) == (
        "The largest share of L1H2's positional score, 0.50, comes from MLP 0."
    )


@given(uncertain(0.0))
def test_no_largest_where_the_interval_holds_equality(pair):
    gap, error = pair
    assert head([0.3 + gap, 0.3, 0.2], [error, 0, 0]) == "" or gap < 0


@pytest.mark.parametrize(
    ("noise", "position", "why"),
    [
        (0.7, 0.3, "0.70 of its positional score is noise of the mean keys (limit 0.5)."),
        (0.7, 0.01, "position explains 0.01 of its score variance (limit 0.05)."),
        (0.1, -0.02, "position explains −0.02 of its score variance (limit 0.05)."),
        (np.nan, 0.0, "its positional score is the same for all keys."),
    ],
)
def test_no_shares(noise, position, why):
    sentence = head([np.nan] * 3, [np.nan] * 3, noise, position)
    assert sentence == f"No shares are given for L1H2: with these texts, {why}"


def test_all_heads():
    share = np.full((2, 3, 3), np.nan)
    assert found("position-sources", {"share": (share, 0.01)}, texts=NAMES) == (
        "No shares are given for any head: none has a positional score to explain."
    )
    share[1] = [[0.9, 0.1, 0.0], [0.51, 0.4, 0.09], [0.1, 0.2, 0.7]]
    assert found("position-sources", {"share": (share, 0.01)}, texts=NAMES) == (
        "Of 3 heads with a positional score, 2 certainly get more than half of it from one "
        "component."
    )


def test_kinds():
    share = np.array([[0.1, 0.2, 0.3], [0.1, 0.7, 0.3]])
    assert found("position-sources", {"mlps_share": (share, 0.01)}) == (
        "1 of 6 heads has a share of the positional score from earlier MLPs of 0.5 or more for "
        "certain; L1H1 has the largest, 0.70."
    )
    one = {"wpos_share": (0.2, 0.01)}
    assert found("position-sources", one, layer=3, head=4) == (
        "Less than half of L3H4's positional score comes from the positional embedding (0.20)."
    )
    assert found("position-sources", {"heads_share": (0.7, 0.01)}, layer=3, head=4) == (
        "Most of L3H4's positional score comes from earlier heads (0.70)."
    )


@given(uncertain(0.5))
def test_no_kind_where_the_interval_holds_a_half(pair):
    assert found("position-sources", {"heads_share": pair}, layer=3, head=4) == ""
