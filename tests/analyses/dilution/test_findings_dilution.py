"""What is said of dilution and of longer contexts, only as far as the intervals allow."""

import pytest
from hypothesis import given

from tests.support.made_findings import check, found, uncertain

AT = {"layer": 3, "head": 4}
HEADS = [[0.1, 0.2, 0.5], [0.8, 0.9, 0.5]]
UPPER = [[0.1, 0.5, 0.1], [0.8, 0.9, 0.9]]
CHANGE = [[0.0, 0.1, 0.2], [0.0, 0.5, 0.95]]
LONG = "longer-contexts"


def slopes(alpha, upper, error=0.01):
    return {"alpha": (alpha, error), "alpha_upper": (upper, error)}


@pytest.mark.parametrize(
    ("question", "numbers", "at", "parts"),
    [
        ("dilution", slopes(0.1, 0.05), AT, "L3H4 keeps its reach|0.10 and 0.05 (upper half)"),
        ("dilution", slopes(0.98, 0.9), AT, "L3H4 spreads over all|0.98 and 0.90 (upper half)"),
        *(("dilution", slopes(*pair), AT, "")  # both slopes must say so
          for pair in ((0.1, 0.5), (0.5, 0.1), (0.9, 0.5), (0.5, 0.9), (0.5, 0.5))),
        ("dilution", slopes(HEADS, UPPER), {}, "below 0.25 in 1 of 6 heads|0.75 or more in 2"),
        ("dilution", slopes([[0.5, 0.1]], [[0.1, 0.5]]), {}, ""),
        (LONG, {"longest_distance": (0.7, 0.01)}, AT, "another kernel: 0.70 from that at 97 tok"),
        (LONG, {"longest_distance": (0.05, 0.01)}, AT, "nearly the same kernel: 0.05 from"),
        *((LONG, {"longest_distance": (gap, 0.01)}, AT, "") for gap in (0.3, 0.5, 0.1)),
        (LONG, {"longest_distance": (HEADS, 0.01)}, {}, "In 5 of 6 heads the distance|(own angles"),
        (LONG, {"loss_change": (CHANGE, 0.05)}, {}, "+0.2 nats (own angles), +0.95 nats (linear"),
        (LONG, {"loss_change": (CHANGE, 0.2)}, {}, "97 tokens: +0.95 nats"),  # what is certain
        (LONG, {"loss_change": (CHANGE, 1.0)}, {}, ""),
    ],
)  # fmt: skip
def test_what_is_said(question, numbers, at, parts):
    texts = {"scaling": ["own", "linear"]} if "loss_change" in numbers else {}
    said = found(question, numbers, {"length": 97}, texts, **at)
    assert bool(parts) == bool(said)
    if parts:
        check(said, *parts.split("|"))


def test_no_slope():
    nothing = slopes(float("nan"), float("nan"), float("nan"))
    said = found("dilution", nothing, texts={"no_slope": "fewer than three queries"}, **AT)
    check(said, "L3H4 has no slope: fewer than three queries.")


@given(uncertain(0.25), uncertain(0.75))
def test_open_slopes_say_nothing(low, high):
    assert "" == found("dilution", {"alpha": low, "alpha_upper": (0.1, 0.01)}, **AT)
    assert "" == found("dilution", {"alpha": (0.9, 0.01), "alpha_upper": high}, **AT)
