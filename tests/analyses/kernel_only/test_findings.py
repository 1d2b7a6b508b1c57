"""What is said of heads that attend by position alone, and what is not."""

import numpy as np
import pytest

from poskernel_core.analyses.kernel_only.spec import EXACT
from poskernel_core.analyses.reading import finding_of, read
from tests.support.made_findings import check, found, made

NAN = np.nan


def head(share, cost):
    numbers = {"kernel_only_share": share, "kernel_only_cost": cost}
    return found("kernel-only-head", numbers, {"head": "L3H7"})


@pytest.mark.parametrize(
    ("share", "cost", "words"),
    [
        ((0.84, 0.02), (0.02, 0.0005), "keeps 0.84 of what the head gives the model, at a cost of "
         "0.02 nats a token: position carries its effect (limit 0.5)."),
        ((0.1, 0.05), (0.05, 0.002), "a token: content carries its effect (limit 0.5)."),
        ((0.5, 0.05), (0.05, 0.002), "If L3H7 attends by its kernel alone, the model loses 0.05 "
         "nats a token."),
        ((NAN, NAN), (-0.02, 0.002), "the model gains 0.02 nats a token."),
        ((NAN, NAN), (0.002, 0.002), ""),
    ],
)  # fmt: skip
def test_one_head(share, cost, words):
    assert words in head(share, cost)
    assert bool(words) == bool(head(share, cost))


def table(exact, share=0.9, cost=0.02):
    numbers = {"kernel_only_share": [[share]], "kernel_only_cost": [[cost]], "exact": [[exact]]}
    errors = {"kernel_only_share": 0.01, "kernel_only_cost": 0.001}
    return made("kernel-only-cost", numbers, errors, labels={"exact": EXACT})


def test_an_estimate_claims_nothing():
    """The verdict of a head uses exact costs only: the error of an estimate misses its bias."""
    exact, estimate = (
        read({"kernel-only-cost": table(code)}, 0, 0).verdict("L0H0") for code in (1, 0)
    )
    check(exact, "L0H0's kernel alone keeps 0.9", "(position carries its effect)")
    assert "" == estimate == finding_of(table(0))
    check(finding_of(table(1)), "1 of 1 exact cost", "0.01 nats a token or more")


def test_many_heads():
    at = {"heads": [1, 16, 32]}
    numbers = {"heads_for_tenth": ([27.0, 20.0], 1.0), "heads_for_5_percent": ([31.5, 22.0], 0.4)}
    said = found("heads-replaced", numbers, coordinates=at)
    check(said, "For 0.1 nats a token, 25 to 29 of 32 heads", "for 5 % of the loss, 31 to 32 (95")
    none = dict.fromkeys(numbers, ([NAN, NAN], NAN))
    assert "" == found("heads-replaced", none, coordinates=at)
