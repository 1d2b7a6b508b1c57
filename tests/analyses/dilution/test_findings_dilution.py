"""What is said of dilution and of longer contexts, only as far as the intervals allow."""

import pytest
from hypothesis import given

from tests.support.made_findings import found, uncertain

SLOPES = {"alpha": (0.1, 0.01), "alpha_upper": (0.05, 0.01)}
AT = {"layer": 3, "head": 4}
HEADS = [[0.1, 0.2, 0.5], [0.8, 0.9, 0.5]]
CHANGE = [[0.0, 0.1, 0.2], [0.0, 0.5, 0.95]]


@pytest.mark.parametrize(
    ("alpha", "upper", "sentence"),
    [
        (0.1, 0.05, "As more keys become visible, L3H4 keeps its reach: the slopes are 0.10 and "
                    "0.05 (upper half)."),
        (0.98, 0.9, "As more keys become visible, L3H4 spreads over all there is: the slopes are "
                    "0.98 and 0.90 (upper half)."),
        (0.1, 0.5, ""), (0.5, 0.1, ""), (0.9, 0.5, ""), (0.5, 0.9, ""), (0.5, 0.5, ""),
    ],
)  # fmt: skip
def test_one_head(alpha, upper, sentence):
    """Both slopes must say so."""
    assert sentence == found(
        "dilution", {"alpha": (alpha, 0.01), "alpha_upper": (upper, 0.01)}, **AT
    )


@given(uncertain(0.25), uncertain(0.75))
def test_open_slopes_say_nothing(low, high):
    assert "" == found("dilution", {"alpha": low, "alpha_upper": (0.1, 0.01)}, **AT)
    assert "" == found("dilution", {"alpha": (0.9, 0.01), "alpha_upper": high}, **AT)


def test_no_slope():
    nothing = {"alpha": (float("nan"), float("nan")), "alpha_upper": (float("nan"), float("nan"))}
    said = found("dilution", nothing, texts={"no_slope": "fewer than three queries"}, **AT)
    assert said == "L3H4 has no slope: fewer than three queries."


def test_all_heads():
    upper = ([[0.1, 0.5, 0.1], [0.8, 0.9, 0.9]], 0.01)
    said = found("dilution", {"alpha": (HEADS, 0.01), "alpha_upper": upper})
    assert said == (
        "As more keys become visible, both slopes are certainly below 0.25 in 1 of 6 heads, which "
        "keep their reach, and 0.75 or more in 2, which spread over all there is."
    )
    assert "" == found(
        "dilution", {"alpha": ([[0.5, 0.1]], 0.01), "alpha_upper": ([[0.1, 0.5]], 0.01)}
    )


@pytest.mark.parametrize(
    ("distance", "error", "words"),
    [(0.7, 0.01, "has another kernel: 0.70 from that at 97 tokens"),
     (0.05, 0.01, "has nearly the same kernel: 0.05 from"), (0.3, 0.01, ""), (0.5, 0.01, ""),
     (0.1, 0.01, "")],
)  # fmt: skip
def test_one_kernel(distance, error, words):
    said = found("longer-contexts", {"longest_distance": (distance, error)}, {"length": 97}, **AT)
    assert words in said
    assert bool(words) == bool(said)


def test_all_kernels():
    said = found("longer-contexts", {"longest_distance": (HEADS, 0.01)}, {"length": 97})
    assert said.startswith("In 5 of 6 heads the distance of the kernel in the longest context (own")


@pytest.mark.parametrize(
    ("error", "words"),
    [(0.05, "+0.2 nats (own angles), +0.95 nats (linear angles)"), (0.2, "97 tokens: +0.95 nats"),
     (1.0, "")],
)  # fmt: skip
def test_loss(error, words):
    """Only what certainly changes is named."""
    said = found(
        "longer-contexts", {"loss_change": (CHANGE, error)}, {"length": 97},
        texts={"scaling": ["own", "linear"]},
    )  # fmt: skip
    assert words in said
    assert bool(words) == bool(said)
