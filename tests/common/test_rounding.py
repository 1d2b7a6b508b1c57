"""Numbers are shown to the digits that their error leaves."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pages.shared.tables.tables import rounded_table
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, number_and_error, rounded, texts_of, value_text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (395.77012, 0.0101, "395.8 ± 0.1"),
        (93.24, 0.4449, "93.24 ± 0.44"),
        (0.0278134, 1.3e-5, "0.02781 ± 0.00002"),
        (-0.5, 0.0996, "−0.50 ± 0.10"),
        (12345.6, 1234.0, "12300 ± 1200"),
        (12345.6, 7.0, "12350 ± 7"),
        (0.0012344, 0.0001, "0.00123 ± 0.00010"),
        (9999.96, 0.1, "10000 ± 1"),
        (7.0, 25.0, "7 ± 25"),
        (-1e-5, 0.0012, "0.0000 ± 0.0012"),
        (3.1, 0.0, "3.1"),
        (3.14159, None, "3.142"),
        (1 / 3, math.nan, "0.3333"),
        (1.0, 1e-12, "1"),
        (1.2e-9, 1.5e-10, "(1.20 ± 0.15)×10⁻⁹"),
        (0.0, 2e-9, "(0.0 ± 2.0)×10⁻⁹"),
        (-1.485e-4, 2.69e-5, "(−1.48 ± 0.27)×10⁻⁴"),
        (0.5, 1e-6, "0.5000 ± 0.0001"),
        (-2.5e-7, None, "−2.5×10⁻⁷"),
        (6.02e23, None, "6.02×10²³"),
        (math.nan, 0.1, "–"),
        (math.nan, None, "–"),
    ],
)
def test_rounded(value, error, text):
    assert text == rounded(value, error)


def test_a_trace_of_a_share():
    for value, error, text in (
        (0.0004, 0.0001, "below 0.001"), (0.0004, None, "below 0.001"), (0.0, 0.0, "0"),
        (0.0004, 0.002, "0.0004 ± 0.0020"), (-0.0004, 0.0001, "(−4.0 ± 1.0)×10⁻⁴"),
        (0.0012, 0.0001, "0.00120 ± 0.00010"),
    ):  # fmt: skip
        assert text == rounded(value, error, "share of attention")
    assert "0.0004" == rounded(0.0004, None, "nats")


@pytest.mark.parametrize(
    ("value", "error", "both"),
    [
        (395.77012, 0.0101, ("395.8", "0.1")),
        (-1.485e-4, 2.69e-5, ("−1.48×10⁻⁴", "0.27×10⁻⁴")),
        (-2.5e-7, None, ("−2.5×10⁻⁷", "")),
        (3.1, 0.0, ("3.1", "")),
        (math.nan, 0.1, ("–", "")),
    ],
)
def test_number_and_error_apart(value, error, both):
    assert both == number_and_error(rounded(value, error))
    assert ("no start token", "") == number_and_error("no start token")


def test_texts_of_a_result():
    result = Result(
        "a", {},
        {"x": np.array([[1.23456, 2.0], [np.nan, 4.0]]), "y": np.array([1 / 3])},
        {"x": ("layer", "head"), "y": ("key",)},
        {"x": "tokens", "y": ""},
        errors={"x": np.array([[0.01, 1.0], [0.1, np.nan]])},
    )  # fmt: skip
    assert [["1.235 ± 0.010", "2.0 ± 1.0"], ["–", "4"]] == texts_of(result, "x").tolist()
    assert ["0.3333"] == texts_of(result, "y").tolist()
    low, high = result.values["y"] - 0.1, np.array([1.0])
    ranged = replace(result.only("y"), lows={"y": low}, highs={"y": high})
    assert ["0.3333 (0.2333 to 1)"] == texts_of(ranged, "y").tolist()
    assert ["0.3333"] == texts_of(replace(ranged, lows={"y": high}), "y").tolist()
    one = result.only("x").select(layer=0, head=0)
    assert "1.235 ± 0.010" == value_text(one, "x")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((1, "token"), "1 token"),
        ((0, "token"), "0 tokens"),
        ((1024, "window"), "1,024 windows"),
        (("1.0 ± 0.2", "token"), "1.0 ± 0.2 tokens"),
        ((2, "entry", "entries"), "2 entries"),
    ],
)
def test_counted(given, text):
    assert text == counted(*given)


def test_a_table():
    values = np.array([[0.5, 0.25, 0.75], [0.25, 1.5, 2.5]])
    result = Result(
        "a", {}, {"x": values, "y": values}, dict.fromkeys("xy", ("layer", "head")),
        dict.fromkeys("xy", "tokens"), errors={"x": values / 20},
    )  # fmt: skip
    rows = [4, 2]
    given = pd.DataFrame({"first": values.ravel()[rows], "second": values.ravel()[rows]}, rows)

    shown = rounded_table(given, result, {"first": "x", "second": "y"})

    lines = shown.hide().to_string(delimiter=";").splitlines()
    assert ["first;second", "1.500 ± 0.075;1.5", "0.750 ± 0.037;0.75"] == lines
    assert ["first", "second"] == [*given.columns]
