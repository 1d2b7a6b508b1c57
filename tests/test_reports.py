"""What the command line prints of a result: every number with its error, or its range."""

import numpy as np
import pytest

from poskernel_core.cli.reports import MOST, summary
from poskernel_core.common.result import Result

RUN = {"model": "m", "windows": 5, "context": 7, "corpus": "sample", "dtype": "float32",
       "device": "cpu", "date": "2026-01-01"}  # fmt: skip


def said(values, **more):
    """The lines of a summary; all values have one axis, or none."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    result = Result(
        analysis="a",
        params={"skip": 4},
        values=arrays,
        axes={name: ("head",) if array.ndim else () for name, array in arrays.items()},
        units=dict.fromkeys(values, "tokens"),
        provenance=RUN | more.pop("provenance", {}),
        **more,
    )
    return summary(result).splitlines()


def test_numbers_with_errors():
    """Rounded to their errors, three digits without one; where it comes from above."""
    lines = said(
        {"mass": [0.123456, 7.2567e-6], "rise": 0.0123456789},
        errors={"mass": np.array([0.01, 2e-7]), "rise": np.array(np.nan)},
    )

    assert "a of m on 5 windows of 7 tokens of 'sample', float32 on cpu, 2026-01-01" == lines[0]
    assert "parameters: {'skip': 4}" == lines[1]
    at = lines.index("mass [head] in tokens")
    assert "[0.123 ± 0.010 (7.26 ± 0.20)e-6]" == lines[at + 1]
    assert ["rise [one number] in tokens", "0.0123"] == lines[-2:]  # an error of nan is none


def test_what_axes_stand_for():
    """Coordinates, and the names of conditions, cases and runs."""
    lines = said(
        {"x": [1.0, 2.0]},
        coordinates={"head": np.array([4, 10])},
        provenance={"cases": ["one", "two"], "conditions": ("both",), "runs": ("flat",)},
    )

    for line in ("head: [ 4 10]", "cases: one, two", "conditions: both", "runs: flat"):
        assert line in lines


def test_words():
    """Codes are printed as what they mean."""
    lines = said({"kind": [1, 0]}, labels={"kind": ("local", "uniform")})

    assert "['uniform' 'local']" == lines[-1]


@pytest.mark.parametrize("count", [MOST, MOST + 1])
def test_many_numbers(count):
    """Beyond a limit the shape, the range without NaN, and how to get them all."""
    values = np.linspace(-2, 5, count)
    values[3] = np.nan
    text = "\n".join(said({"x": values}))

    ranged = f"{count} numbers, -2 to 5; all of them with --json or --npz, fewer with --head"
    assert (ranged in text) == (count > MOST)
    assert ("nan" in text) == (count == MOST)


def test_tokens_are_spelt():
    """Ids of tokens are followed by their words, and lists of tokens by their numbers."""
    tokens = np.array([[5, 7], [7, 5]])
    result = Result(
        analysis="a",
        params={},
        values={"top": tokens, "many": np.arange(MOST + 1)},
        axes={"top": ("neuron", "rank"), "many": ("token",)},
        units={"top": "token", "many": "token"},
        provenance=RUN
        | {"token_words": {"5": " x", "7": "y\n"}, "listed": {"up": [(" x", 1.2345)]}},
    )

    lines = summary(result).splitlines()
    at = lines.index("top [neuron x rank] in token")
    assert ["' x' 'y\\n'", "'y\\n' ' x'"] == lines[at + 3 : at + 5]
    assert "up: ' x' 1.23" == lines[-1]
