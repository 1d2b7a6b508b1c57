"""What the command line prints of a result: every number with its error, or its range."""

import numpy as np
import pytest

from poskernel_core.cli.reports import MOST, summary
from poskernel_core.common.result import Result, Value

RUN = {"model": "m", "windows": 5, "context": 7, "corpus": "sample", "dtype": "float32",
       "device": "cpu", "date": "2026-01-01"}  # fmt: skip


def said(values, texts=(), **more):
    """The lines of a summary; all values have one axis, or none."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    result = Result(
        analysis="a",
        params={"skip": 4},
        values=arrays,
        axes={name: ("head",) if array.ndim else () for name, array in arrays.items()},
        units=dict.fromkeys(values, "tokens"),
        provenance=RUN,
        **more,
    )
    for name, text in texts:
        result = result.with_text(Value(name, ("case",), "name", ""), text)
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
    assert "[0.123 ± 0.010 (7.26 ± 0.20)×10⁻⁶]" == lines[at + 1]
    assert ["rise [one number] in tokens", "0.0123"] == lines[-2:]  # an error of nan is none


def test_what_axes_stand_for():
    """Coordinates, and the names of conditions, cases and runs."""
    lines = said(
        {"x": [1.0, 2.0]},
        coordinates={"head": np.array([4, 10])},
        texts=[("cases", ["one", "two"]), ("runs", ("flat",))],
    )

    for line in ("head: [ 4 10]", "cases: one; two", "runs: flat"):
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
    """Tokens as Python writes them, a line for each row; sentences as they are; few, not many."""
    result = Result("a", {}, {}, {}, {}, provenance=RUN)
    result = result.with_text(
        Value("top", ("neuron", "rank"), "token", ""), [[" x", "y\n"], ["", "a"]]
    )
    result = result.with_text(Value("many", ("pos",), "token", ""), ["a"] * (MOST + 1))
    result = result.with_text(Value("said", ("line",), "sentence", ""), ["It is so.", "Or not."])

    lines = summary(result).splitlines()
    assert ["", "top [neuron x rank]", "' x' 'y\\n'", "'' 'a'"] == lines[2:6]
    assert ["", "said [line]", "It is so.", "Or not."] == lines[6:]
