"""What is found about induction: sentences, and none where the interval holds the limit."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import alike, found, uncertain

HEAD = {"layer": 3, "head": 7}
SCORES = "induction-scores"
ROWS = {"second": [4, 5]}


@pytest.mark.parametrize(
    ("score", "sentence"),
    [
        (0.87, "L3H7 gives 0.87 of its attention to the token after the earlier duplicate: an "
               "induction head (limit 0.3)."),
        (0.02, "L3H7 gives only 0.02 of its attention to the token after the earlier duplicate: "
               "not an induction head (limit 0.3)."),
        (0.31, ""),
        (np.nan, ""),
    ],
)  # fmt: skip
def test_one_head(score, sentence):
    assert sentence == found(SCORES, {"induction": (score, 0.02)}, **HEAD)


def test_all_heads():
    scores = [[0.1, 0.5, 0.9], [0.31, 0.0, np.nan]]
    assert (
        "2 of 5 heads have an induction score of 0.3 or more for certain; L0H2 has the largest, "
        "0.90."
    ) == found(SCORES, {"induction": (scores, 0.02)})
    assert (
        "1 of 2 heads has an induction score of 0.3 or more for certain; L1H1 has the largest, "
        "0.90."
    ) == found(SCORES, {"induction": ([0.1, 0.9], 0.02)}, layer=1)
    assert "None of 2 heads has an induction score of 0.3 or more." == found(
        SCORES, {"induction": ([[0.1], [0.11]], 0.02)}
    )


def test_the_strongest_is_named_only_if_it_certainly_is():
    assert found(SCORES, {"induction": ([[0.9], [0.88]], 0.02)}) == (
        "2 of 2 heads have an induction score of 0.3 or more for certain."
    )


@given(uncertain(0.3))
def test_nothing_is_said_where_the_interval_holds_the_limit(score):
    assert "" == found(SCORES, {"induction": score}, **HEAD)
    assert "" == found(SCORES, {"induction": ([[score[0], 0.1]], [[score[1], 0.01]])})


def test_nothing_is_certain_without_errors():
    """As where there is only one group of texts."""
    assert "" == found(SCORES, {"induction": (0.1, np.nan)}, **HEAD)
    assert "" == found(SCORES, {"induction": ([[0.9, 0.1]], np.nan)})
    chances = ([[0.3, 0.08], [0.2, 0.2]], np.nan)
    assert "" == found("induction-recency", {"probability": chances}, coordinates=ROWS)


def test_recency_of_the_model_and_of_a_head():
    chances = ([[0.3, 0.08], [0.2, 0.2]], 0.01)
    assert (
        "As the last pair moves towards the end, the probability of its candidate rises from 0.08 "
        "to 0.20: the model prefers recent tokens."
    ) == found("induction-recency", {"probability": chances}, coordinates=ROWS)
    falls = ([[0.3, 0.4], [0.2, 0.2]], 0.01)
    assert (
        "As the last pair moves towards the end, L3H7's attention to its candidate falls from 0.40 "
        "to 0.20."
    ) == found("induction-recency", {"candidate_attention": falls}, coordinates=ROWS, **HEAD)


@given(alike())
def test_no_recency_without_a_certain_difference(pair):
    numbers, errors = (np.array(each)[:, None] for each in pair)
    part = {"probability": (numbers, errors)}
    assert "" == found("induction-recency", part, coordinates=ROWS)


def test_rows_in_which_the_last_candidate_gets_most():
    rows = ([[0, 0, 0, 0, 0, 0.8, 0.2], [0, 0, 0, 0, 0, 0.2, 0.3]], 0.1)
    assert (
        "In 1 of 2 rows L3H7 certainly attends more to the last candidate than to any other key."
    ) == found("induction-recency", {"last_row": rows}, coordinates=ROWS, **HEAD)
    assert "" == found("induction-recency", {"last_row": (rows[0], 1)}, coordinates=ROWS, **HEAD)


def pattern(first, last):
    """The pattern of sequences of seven tokens whose candidates are at 2 and 5."""
    made = np.zeros((7, 7))
    made[-1, [2, 5]] = first, last
    return made


PLACES = {"first": 1, "second": 4}


def test_the_candidate_that_a_head_prefers():
    assert (
        "From the last [A], L3H7 attends more to the last candidate (0.35) than to the first "
        "(0.10)."
    ) == found("recency-patterns", {"pattern": (pattern(0.1, 0.35), 0.01)}, PLACES, **HEAD)
    heads = [pattern(0.1, 0.35), pattern(0.2, 0.1), pattern(0.2, 0.5)]
    assert (
        "From the last [A], 2 of 3 heads of layer 3 certainly attend more to the last candidate "
        "than to the first, and 1 less."
    ) == found("recency-patterns", {"pattern": (heads, 0.01)}, PLACES, layer=3)


@given(alike())
def test_no_preference_without_a_certain_difference(pair):
    part = {"pattern": (pattern(*pair[0]), pattern(*pair[1]))}
    assert "" == found("recency-patterns", part, PLACES, **HEAD)


def cause(change, error):
    """What is found where equalised norms change a head's rise."""
    numbers = {
        "attention": ([0.7, 0.6], 0.01),
        "attention_rise": ([0.3, 0.3 + change], 0.1),
        "attention_rise_change": (change, error),
    }
    return found("equalised-norms", numbers, **HEAD)


def test_what_equalised_norms_change():
    assert (
        "With layer 0's norms equalised, the rise of L3H7's attention to the last candidate falls "
        "from 0.30 to 0.12 (its attention to all candidates: 0.70, then 0.60)."
    ) == cause(-0.18, 0.02)
    numbers = {"probability_rise": ([0.1, 0.2], 0.1), "probability_rise_change": (0.1, 0.01)}
    assert (
        "With layer 0's norms equalised, the rise of the last candidate's probability rises from "
        "0.10 to 0.20."
    ) == found("equalised-norms", numbers)


@given(uncertain())
def test_no_change_without_a_certain_one(change):
    assert "" == cause(*change)
