"""From numbers to colours and a legend: every scale at its ends, in between, beyond, and at NaN."""

import re

import numpy as np
import pytest

from poskernel_core.plotting.palette import CATEGORICAL, DIVERGING, NO_VALUE, SCALE
from poskernel_core.plotting.shades import Shade, categories, diverging, linear, logarithmic

STEPS = 121
NAMES = ("near", "far", "neither")


def colours(shade: Shade) -> list[str]:
    return shade.colours[0]


def ticks(shade: Shade) -> dict[int, str]:
    return {step: text for step, (_, text) in enumerate(shade.legend) if text}


def luminance(colour: str) -> float:
    rgb = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return float(np.array([0.2126, 0.7152, 0.0722]) @ rgb)


def test_linear_runs_from_zero_to_the_largest() -> None:
    shade = linear(np.array([[0.0, 2.0, 4.0]]))
    middle = shade.legend[STEPS // 2][0]
    assert [SCALE[0], middle, SCALE[-1]] == colours(shade)
    assert {0: "0", 60: "2", 120: "4"} == ticks(shade)


def test_linear_to_a_given_end_clips() -> None:
    shade = linear(np.array([[-1.0, 0.0, 1.0, 3.0]]), 1.0)
    assert [SCALE[0], SCALE[0], SCALE[-1], SCALE[-1]] == colours(shade)
    assert {0: "0", 60: "0.5", 120: "1"} == ticks(shade)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_linear_of_nothing(value: float) -> None:
    expected = NO_VALUE if np.isnan(value) else SCALE[0]
    assert [expected] * 2 == colours(linear(np.full((1, 2), value)))


def test_ticks_of_the_log_scale_lie_on_it() -> None:
    shade = logarithmic(np.array([[1.0, 10.0, 100.0]]), 1.0, 100.0)
    assert {0: "1", 60: "10", 120: "100"} == ticks(shade)
    assert [SCALE[0], shade.legend[60][0], SCALE[-1]] == colours(shade)


def test_the_log_scale_finds_its_own_ends() -> None:
    values = np.array([[0.2, 0.5, 1.0, 2.0, 4.0, np.inf]])
    shade = logarithmic(values[:, :5])
    assert (SCALE[0], SCALE[-1]) == (colours(shade)[0], colours(shade)[-1])
    assert ["0.2", "0.5", "1", "2"] == list(ticks(shade).values())
    for step, text in ticks(shade).items():
        at = colours(shade)[values[0].tolist().index(float(text))]
        assert abs(luminance(at) - luminance(shade.legend[step][0])) < 2
    assert colours(shade) == colours(logarithmic(values))[:5]


def test_the_log_scale_clips_and_leaves_out() -> None:
    """0 is the lower end; negative and unknown numbers have no colour; beyond it is clipped."""
    values = np.array([[0.01, 0.0, 1000.0, -1.0, np.nan]])
    shown = [SCALE[0], SCALE[0], SCALE[-1], NO_VALUE, NO_VALUE]
    assert shown == colours(logarithmic(values, 1.0, 100.0))
    nothing = logarithmic(np.full((1, 2), np.nan))
    assert ([NO_VALUE] * 2, STEPS) == (colours(nothing), len(nothing.legend))
    assert [SCALE[0]] == colours(logarithmic(np.array([[3.0]])))


def test_diverging_has_its_middle_at_zero() -> None:
    shade = diverging(np.array([[-0.5, 0.0, 0.25, 0.5, np.nan]]))
    low, zero, _, high, missing = colours(shade)
    ends = [DIVERGING[0].lower(), DIVERGING[len(DIVERGING) // 2], DIVERGING[-1].lower(), NO_VALUE]
    assert ends == [low, zero, high, missing]
    assert {0: "−0.5", 60: "0", 120: "0.5"} == ticks(shade)
    assert [zero] == colours(diverging(np.zeros((1, 1))))
    one_sided = diverging(np.array([[0.0, 0.5]]))
    assert [zero, high] == colours(one_sided)


def test_categories_have_the_colours_of_their_names() -> None:
    shade = categories(np.array([[2.0, 0.0, -1.0, 1.0]]), NAMES)
    assert [CATEGORICAL[2], CATEGORICAL[0], NO_VALUE, CATEGORICAL[1]] == colours(shade)
    assert dict(zip(NAMES, CATEGORICAL, strict=False)) == {
        text: colour for colour, text in shade.legend if text
    }
    own = categories(np.array([[1, 0]]), NAMES[:2], ("#010203", "#fefefe"))
    assert ["#fefefe", "#010203"] == colours(own)


@pytest.mark.parametrize("count", range(1, 9))
def test_a_category_name_stands_in_the_middle_of_its_colour(count: int) -> None:
    shade = categories(np.zeros((1, 1)), [f"name {each}" for each in range(count)])
    for at, (step, text) in enumerate(ticks(shade).items()):
        same = [place for place, (colour, _) in enumerate(shade.legend)
                if colour == CATEGORICAL[at]]  # fmt: skip
        assert (f"name {at}", STEPS // count) == (text, len(same))
        assert abs(step - np.mean(same)) <= 0.5


def test_more_categories_than_colours_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        categories(np.zeros((1, 1)), [f"{each}" for each in range(len(CATEGORICAL) + 1)])


@pytest.mark.parametrize("shading", [linear, logarithmic, diverging])
def test_larger_is_lighter(shading) -> None:
    """Colours follow the order of the numbers, also in a grey print; the legend's as well."""
    values = np.sort(np.random.default_rng(2).lognormal(size=40))
    shade = shading(values.reshape(4, 10))
    light = [luminance(colour) for row in shade.colours for colour in row]
    bar = [luminance(colour) for colour, _ in shade.legend]
    assert all(np.diff(each).min() > -1 for each in (light, bar))  # colours are whole numbers
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for row in shade.colours for colour in row)
    assert {10} == {len(row) for row in shade.colours}
    assert STEPS == len(shade.legend)
