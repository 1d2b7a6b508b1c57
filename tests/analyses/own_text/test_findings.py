"""What is found on one text, where numbers are exact."""

import numpy as np
import pytest

from tests.support.made_findings import found

HEAD = {"layer": 2, "head": 6}


def test_heads_whose_scores_position_decides():
    shares = {"position_share": [[0.5, 0.97], [0.1, np.nan]]}
    assert (
        "2 of 3 heads have a share of position in this text's scores of 0.5 or more; L0H1 has the "
        "largest, 0.97."
    ) == found("own-text", shares)


def test_a_share_above_1_is_explained():
    above = "(above 1, since content works against position)."
    shares = {"position_share": [[4.33, 0.97], [0.1, np.nan]]}
    assert found("own-text", shares).endswith(f"L0H0 has the largest, 4.33 {above}")
    one = {"position_share": 0.4, "content_share": 1.2, "covariance_share": -0.6}
    assert found("own-text", one, **HEAD).endswith(f"content explains 1.2 {above}")


@pytest.mark.parametrize(("share", "than"), [(0.9, "more"), (0.2, "less")])
def test_one_head_on_the_text_and_one_token(share, than):
    shares = {"position_share": share, "content_share": 0.3}
    rest = f"{than} than half; content explains 0.30."
    assert (
        f"Position explains {share:.2f} of the variance of L2H6's scores on this text, {rest}"
    ) == found("own-text", shares, **HEAD)
    assert (
        f"Position explains {share:.2f} of the variance of L2H6's scores at token 12, {rest}"
    ) == found("own-text-head", shares, {"head": "L2H6"}, query=12)


def test_tokens_at_which_position_decides():
    assert (
        "At 2 of 3 tokens of this text, position explains more than half of the variance of L2H6's "
        "scores."
    ) == found("own-text-head", {"position_share": [np.nan, 0.9, 0.2, 0.6]}, {"head": "L2H6"})


def test_nothing_without_shares():
    none = {"position_share": np.nan, "content_share": np.nan}
    assert "" == found("own-text", none, **HEAD)
    assert "" == found("own-text-head", {"position_share": [np.nan]}, {"head": "L2H6"})


def pattern(rows, first=0):
    """What is found in rows of a pattern, from a query on."""
    place = {"query": np.arange(first, first + len(rows))}
    return found("own-text-head", {"pattern": rows}, {"head": "L2H6"}, coordinates=place)


def looks_back(back, share, keys=11):
    """A pattern that gives a share to the token so many places back, and the rest to key 5."""
    made = np.zeros((keys, keys))
    for query in range(back, keys):
        made[query, query - back] += share
        made[query, min(5, query)] += 1 - share
    return made


@pytest.mark.parametrize("first", [0, 6])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_the_distance_that_gets_most(back, first):
    rows = looks_back(back, 0.8)
    queries = range(max(first, back), 11)
    share = np.mean([rows[query, query - back] for query in queries])
    place = "1 place" if back == 1 else f"{back} places"
    assert (
        f"On this text L2H6 gives {share:.2f} of its attention to the token {place} back (limit "
        "0.3), as a mean over the tokens."
    ) == pattern(rows[first:], first)


def test_the_first_key_and_no_distance_at_all():
    sink = np.zeros((7, 7))
    sink[:, 0] = 0.9
    assert "gives 0.90 of its attention to key 0 (limit 0.3)" in pattern(sink)
    even = np.tril(np.full((7, 7), 0.1))
    even[:, 0] = 0.2
    assert (
        "On this text L2H6 gives neither key 0 nor any distance up to 3 0.3 of its attention: key "
        "0 gets most, 0.20."
    ) == pattern(even)
