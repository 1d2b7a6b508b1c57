"""What is found about position against token."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import alike, found, uncertain

QUESTION = "position-vs-token"
HEAD = {"layer": 2, "head": 6}


def look_back(alone, error=0.01, **head):
    """What is found about the largest diagonals with both, positions only and tokens only."""
    numbers = {
        "largest_mass": ([0.9, alone, 0.2], [0.01, error, 0.01]),
        "largest_offset": [1, 2, 0],
    }
    return found(QUESTION, numbers, **head)


@pytest.mark.parametrize(
    ("alone", "sentence"),
    [
        (0.8, "With positions only, L2H6 gives 0.80 of its attention to one distance, 2 tokens "
              "back (limit 0.3); with tokens as well the most is 0.90 (1 token back)."),
        (0.1, "With positions only, L2H6 gives no distance 0.3 of its attention: the most is 0.10 "
              "(2 tokens back)."),
    ],
)  # fmt: skip
def test_a_head_that_looks_back(alone, sentence):
    assert sentence == look_back(alone, **HEAD)


@given(uncertain(0.3))
def test_nothing_about_a_head_at_the_limit(alone):
    assert "" == look_back(*alone, **HEAD)
    masses = {"largest_mass": (np.full((3, 1, 1), alone[0]), alone[1])}
    assert "" == found(QUESTION, masses | {"largest_offset": np.ones((3, 1, 1))})


def test_all_heads():
    masses, offsets = np.zeros((2, 3, 2, 2))
    masses[1], offsets[1] = [[0.9, 0.5], [0.8, 0.1]], [[0, 1], [2, 1]]
    assert (
        "With positions only, 2 of 4 heads certainly give 0.3 or more of the attention to one "
        "distance back, such as L1H0 (0.80, 2 tokens back)."
    ) == found(QUESTION, {"largest_mass": (masses, 0.01), "largest_offset": offsets})
    assert (
        "With positions only, none of 4 heads looks back: no largest diagonal with 0.3 or more of "
        "the attention is at an earlier token."
    ) == found(QUESTION, {"largest_mass": (masses, 0.01), "largest_offset": 0 * offsets})


def test_the_key_that_position_favours():
    scores = [[0, 0, 9, 0], [1, 5, 2, np.nan], [0, 0, 9, 0]]
    assert (
        "With positions only, L2H6's score from position 2 is highest at key 1 (1 token back), 3 "
        "nats above the next."
    ) == found(QUESTION, {"score": (scores, 0.1)}, query=2, **HEAD)


def attention(position, token, *errors):
    """What is found where both attend most to key 1."""
    rows = [[0.1, 0.9], [0.2, position], [0.2, token]]
    spread = [[0.01, 0.01], *([0.01, error] for error in errors)]
    return found(QUESTION, {"pattern": (rows, spread)}, query=2, **HEAD)


def test_the_key_that_gets_most():
    assert (
        "From position 2, L2H6 attends most to key 1 (0.90), more with positions only (0.80) than "
        "with tokens only (0.10)."
    ) == attention(0.8, 0.1, 0.01, 0.01)


def maps(position, token, *errors):
    """What is found in patterns of seven tokens that give a share to the token two back."""
    patterns = [share * np.eye(7, k=-2) for share in (0.9, position, token)]
    spread = np.reshape([0.01, *errors], (3, 1, 1))
    return found(QUESTION, {"pattern": (patterns, spread)}, **HEAD)


def test_the_largest_diagonal():
    assert (
        "L2H6's largest diagonal (2 tokens back) gets 0.90 of the attention, less with positions "
        "only (0.10) than with tokens only (0.80)."
    ) == maps(0.1, 0.8, 0.01, 0.01)


def zero(numbers, errors):
    return found("position-zero", {"probability": ([np.nan, *numbers], [np.nan, *errors])}, **HEAD)


def test_induction_from_position_0():
    assert (
        "Without a start token, [B] is less likely after the last [A] if the first [A] is at "
        "position 0 (0.05) than if it is at position 1 (0.30)."
    ) == zero((0.05, 0.3), (0.01, 0.01))


@given(alike())
def test_nothing_without_a_certain_difference(pair):
    numbers, errors = pair
    assert "" == attention(*numbers, *errors)
    assert "" == zero(numbers, errors)
    assert "" == maps(*numbers, *errors)
    scores = ([[0, 0], numbers, [0, 0]], [[0, 0], errors, [0, 0]])
    assert "" == found(QUESTION, {"score": scores}, query=1, **HEAD)
