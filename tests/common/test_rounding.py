"""Numbers are shown to the digits that their error leaves."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pages.shared.tables.tables import rounded_table
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import (
    bias_text,
    counted,
    number_and_error,
    rounded,
    texts_of,
    value_and_bias,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (395.77012, 0.0101, "395.770 ± 0.010"),
        (93.24, 0.4449, "93.24 ± 0.44"),
        (0.0278134, 1.3e-5, "0.027813 ± 0.000013"),
        (-0.5, 0.0996, "−0.50 ± 0.10"),
        (12345.6, 1234.0, "12300 ± 1200"),
        (7.0, 25.0, "7 ± 25"),
        (3.1, 0.0, "3.1"),
        (3.14159, None, "3.142"),
        (1 / 3, math.nan, "0.3333"),
        (1.0, 1e-12, "1"),
        (1.2e-9, 1.5e-10, "(1.20 ± 0.15)×10⁻⁹"),
        (0.0, 2e-9, "(0.0 ± 2.0)×10⁻⁹"),
        (-1.485e-4, 2.69e-5, "(−1.48 ± 0.27)×10⁻⁴"),
        (0.5, 1e-6, "0.5000000 ± 0.0000010"),
        (-2.5e-7, None, "−2.5×10⁻⁷"),
        (6.02e23, None, "6.02×10²³"),
        (math.nan, 0.1, "–"),
        (math.nan, None, "–"),
    ],
)
def test_rounded(value, error, text):
    assert text == rounded(value, error)


@pytest.mark.parametrize(
    ("value", "error", "both"),
    [
        (395.77012, 0.0101, ("395.770", "0.010")),
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
    one = result.only("x").select(layer=0, head=0)
    assert "1.235 ± 0.010" == value_text(one, "x")


@pytest.mark.parametrize(
    ("bias", "text"),
    [(0.01234, "0.012"), (-1.5e-7, "−1.5×10⁻⁷"), (np.array(2.0), "2"), (math.nan, ""), (None, "")],
)
def test_a_bias(bias, text):
    assert text == bias_text(bias)


def test_a_number_with_its_bias():
    one = Result("a", {}, {"x": np.array(1.23456)}, {"x": ()}, {"x": "tokens"},
                 errors={"x": np.array(0.01)}, biases={"x": np.array(-0.0347)})  # fmt: skip
    assert "1.235 ± 0.010, bias −0.035" == value_and_bias(one, "x")
    assert "1.235 ± 0.010" == value_and_bias(replace(one, biases={}), "x")


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


def test_a_table_with_biases():
    values = np.array([[0.5, 0.25, 0.75], [0.25, 1.5, 2.5]])
    result = Result(
        "a", {}, {"x": values, "y": values}, dict.fromkeys("xy", ("layer", "head")),
        dict.fromkeys("xy", "tokens"), errors=dict.fromkeys("xy", values / 20),
        biases={"x": np.array([[0.011, 0.022, np.nan], [0.033, 0.044, 0.055]])},
    )  # fmt: skip
    rows = [4, 3, 2, 1]
    given = pd.DataFrame({"first": values.ravel()[rows], "second": values.ravel()[rows]}, rows)

    shown = rounded_table(given, result, {"first": "x", "second": "y"})

    lines = shown.hide().to_string(delimiter=";").splitlines()
    assert [
        "first;first, bias;second",
        "1.500 ± 0.075;0.044;1.500 ± 0.075",
        "0.250 ± 0.013;0.033;0.250 ± 0.013",
        "0.750 ± 0.037;;0.750 ± 0.037",
        "0.250 ± 0.013;0.022;0.250 ± 0.013",
    ] == lines
    assert ["first", "second"] == [*given.columns]
