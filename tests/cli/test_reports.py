"""What the command line prints of a result: every number with its error, or its range."""

import numpy as np
import pytest

from poskernel_core.cli.reports import MAX_NUMBERS, summary
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
        **{"provenance": RUN} | more,
    )
    for name, text in texts:
        result = result.with_text(Value(name, ("case",), "name", ""), text)
    return summary(result).splitlines()


def test_numbers_with_errors():
    lines = said(
        {"mass": [0.123456, 7.2567e-6], "rise": 0.0123456789},
        errors={"mass": np.array([0.01, 2e-7]), "rise": np.array(np.nan)},
    )

    assert "a of m on 5 windows of 7 tokens of 'sample', float32 on cpu, 2026-01-01" == lines[0]
    assert "parameters: {'skip': 4}" == lines[1]
    at = lines.index("mass [head] in tokens")
    assert "[0.123 ± 0.010 (7.26 ± 0.20)×10⁻⁶]" == lines[at + 1]
    assert ["rise [one number] in tokens", "0.0123"] == lines[-2:]  # an error of nan is none


def test_one_minus_sign():
    """Of numbers, of the ends of intervals and spans, of coordinates, and in powers of ten."""
    many = np.linspace(-2e-6, -1, MAX_NUMBERS + 1)
    lines = said(
        {"effect": -0.212, "change": [-0.5, -3e-7], "lags": [-2, 1], "many": many, "bare": -7.0},
        errors={"effect": np.array(0.012)},
        lows={"effect": np.array(-0.2393)},
        highs={"effect": np.array(-0.1848)},
        coordinates={"head": np.array([-3, 4])},
    )
    assert "−0.212 ± 0.012 (95 %: −0.2393 to −0.1848)" in lines
    assert {"head: [−3  4]", "[−0.5 −3×10⁻⁷]", "[−2  1]", "−7"} <= {*lines}
    assert any(line.startswith("201 numbers, −1 to −2×10⁻⁶;") for line in lines)
    assert not [
        line
        for line in lines[2:]
        if "-" in line.replace("--json or --npz", "").replace("--head", "")
    ]


def test_what_errors_count():
    """Biases are left to exports; an interval stands beside one number."""
    many = np.linspace(1, 2, MAX_NUMBERS + 1)
    known = {"mass": np.array([0.01, 0.02]), "many": many / 7}
    lines = said({"mass": [0.5, 0.25], "many": many, "x": 1.0}, errors=known,
                 biases={"mass": np.array([0.00123, np.nan])},
                 provenance=RUN | {"errors": "documents", "groups": 10})  # fmt: skip

    sentence = "Numbers are corrected for bias. Errors count documents, in 10 groups; a 95 %"
    assert lines[2].startswith(sentence)
    assert 1 == sum("Errors count" in line for line in lines)
    at = lines.index("mass [head] in tokens")
    assert "[0.500 ± 0.010 0.250 ± 0.020]" == lines[at + 1]
    at = lines.index("many [head] in tokens")
    heads = [line.split(" numbers, ")[1].split(";")[0] for line in lines[at + 1 : at + 4 : 2]]
    assert ("standard error", ["1 to 2", "0.143 to 0.286"]) == (lines[at + 2], heads)
    assert "bias" not in lines


def test_words():
    lines = said(
        {"kind": [1, 0]},
        labels={"kind": ("local", "uniform")},
        coordinates={"head": np.array([4, 10])},
        texts=[("cases", ["one", "two"]), ("runs", ("flat",))],
    )
    for line in ("head: [ 4 10]", "cases: one; two", "runs: flat"):
        assert line in lines
    assert "['uniform' 'local']" == lines[-1]


@pytest.mark.parametrize("count", [MAX_NUMBERS, MAX_NUMBERS + 1])
def test_many_numbers(count):
    values = np.linspace(-2, 5, count)
    values[3] = np.nan
    text = "\n".join(said({"x": values}))

    ranged = f"{count} numbers, −2 to 5; all of them with --json or --npz, fewer with --head"
    assert (ranged in text) == (count > MAX_NUMBERS)
    assert ("nan" in text) == (count == MAX_NUMBERS)


def test_tokens_are_spelt():
    result = Result("a", {}, {}, {}, {}, provenance=RUN)
    result = result.with_text(
        Value("top", ("neuron", "rank"), "token", ""), [[" x", "y\n"], ["", "a"]]
    )
    result = result.with_text(Value("many", ("pos",), "token", ""), ["a"] * (MAX_NUMBERS + 1))
    result = result.with_text(Value("said", ("line",), "sentence", ""), ["It is so.", "Or not."])

    result = result.with_text(Value("begun", ("pair",), "text", ""), ["It was", "\x1b no"])

    lines = summary(result).splitlines()
    assert ["", "said [line]", "It is so.", "Or not."] == lines[2:6]
    assert ["", "top [neuron x rank]", "' x' 'y\\n'", "'' 'a'"] == lines[6:10]
    assert ["", "begun [pair]", "'It was'", "'\\x1b no'"] == lines[10:]


def test_verdicts_are_sentences():
    """Of however many heads; their numbers are in other forms."""
    rank = {"rank": np.arange(300)}
    result = Result("a", {}, rank, {"rank": ("head",)}, {"rank": "rank"}, provenance=RUN)
    every = [f"L0H{head} looks." for head in range(300)]
    lines = summary(
        result.with_text(Value("verdict", ("head",), "sentence", ""), every)
    ).splitlines()
    assert ["", "verdict [head]", *every, "", "the numbers behind them: --json"] == lines[2:]
