"""What is said of two prompts, and of sets; where they show no behaviour, only why."""

import pytest

from poskernel_core.analyses.patching.views import CLEAR
from poskernel_core.analyses.views import finding_of
from tests.support.made_findings import check, made

EFFECTS = {"effect": [[0.7, 0.1]], "attribution": [[0.6, 0.1]]}


def said(clean, changed, metric="difference", question="patch-heads", **numbers):
    ends = {"clean_metric": clean, "changed_metric": changed}
    return finding_of(made(question, (numbers or EFFECTS) | ends, params={"metric": metric}))


def test_a_head_is_named_where_the_clean_prompt_prefers_its_answer():
    check(said(2.0, 2.0 - CLEAR), "L0H0 restores 0.70 of the difference")
    check(said(2.0, -1.0), "L0H0 restores 0.70 of the difference")


@pytest.mark.parametrize("question", ["patch-heads", "patch-positions"])
def test_the_clean_prompt_prefers_the_other_answer(question):
    numbers = {"part_effect": [0.9, 0.8, 0.1]} if question == "patch-positions" else {}
    told = said(-0.75, -3.0, question=question, **numbers)
    check(told, "The clean prompt prefers the other answer (by 0.75 nats)")


def test_other_metrics_have_no_sign():
    """A log probability is below 0, and a loss above."""
    for metric in ("log-probability", "loss"):
        check(said(-0.75, -3.0, metric), "L0H0 restores")


def test_a_small_difference_has_no_shares():
    check(said(2.0, 1.75), "The prompts differ by 0.25 nats only (limit 0.5)")
    check(said(2.0, 2.25, "loss"), "The prompts differ by 0.25 nats only (limit 0.5)")


SETS = {"effect": [[0.7, 0.1, 0.02]], "attribution": [[0.6, 0.1, 0.1]]}


def of_set(errors, question="patch-heads", numbers=SETS, **ends):
    ends = {"clean_metric": (2.0, 0.1), "changed_metric": (-1.0, 0.1)} | ends
    every = {name: (value, errors.get(name)) for name, value in numbers.items()} | ends
    known = {name: error for name, (_, error) in every.items() if error is not None}
    values = {name: value for name, (value, _) in every.items()}
    return finding_of(made(question, values, known, provenance={"groups": 10, "errors": "pairs"}))


def test_a_set_says_what_its_errors_allow():
    """The list by false discovery; a head that may carry as much is counted; else nothing."""
    told = of_set({"effect": [[0.05, 0.01, 0.05]], "attribution": 0.1})
    check(
        told, "L0H0 restores 0.70 of the difference in this set of pairs, most of all heads; 2 of"
    )
    assert told.endswith("2 of 3 exact effects (1 more can't be told) are not 0.")
    tie = of_set({"effect": [[0.2, 0.2, 0.01]], "attribution": 0.1})
    check(
        tie, "L0H0 restores 0.70 of the difference in this set of pairs, most of all heads (1 other"
    )
    assert "" == of_set({"effect": 9.0, "attribution": 0.1})


def test_a_set_of_prompts_without_the_behaviour():
    """A mean difference that may lie below the limit has no shares."""
    errors = {"effect": 0.01, "attribution": 0.01}
    check(of_set(errors, clean_metric=(-0.75, 0.1)), "The clean prompt prefers the other answer")
    assert "" == of_set(errors, clean_metric=(0.3, 0.1), effect=([[0.0, 0, 0]], 0.01))
    told = of_set(errors, difference=(0.9, 0.2))
    check(told, "The prompts differ by 0.90 nats in the mean, which is not clearly more than 0.5")
    check(of_set(errors, difference=(1.1, 0.2)), "L0H0 restores")


def test_what_decides_in_a_set():
    """Where it looks, or what it finds, if intervals say so."""
    given = {"question": "patch-positions", "numbers": {"part_effect": [0.9, 0.8, 0.1]}}
    check(of_set({"part_effect": 0.02}, **given), "in this set of pairs, its pattern alone 0.80")
    assert "where it looks decides" in of_set({"part_effect": 0.02}, **given)
    assert "decides" not in of_set({"part_effect": 0.2}, **given)
    assert "" == of_set({"part_effect": 2.0}, **given)
