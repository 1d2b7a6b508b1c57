"""Two prompts that show no behaviour: nothing is said of heads, only why."""

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
