"""Kinds of previous-token heads: constructed heads whose mechanism is known; scores as a figure."""

import math

import numpy as np
import pytest

from poskernel_core.analyses.previous_token.spec import read_kind
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.specs import BAND
from tests.analyses.previous_token.test_previous_token import different, ranked
from tests.support import builders
from tests.support.made_results import check_curve, named, result

TEXTS, CONTEXT, T = 3, 31, 37


@pytest.fixture(scope="module")
def constructed(tmp_path_factory):
    root = tmp_path_factory.mktemp("previous")
    return {
        "dark": builders.dark_head(root / "dark", T),
        "aggregator": builders.aggregator(root / "aggregator", T),
        "one back": builders.look_back(root / "one", 1, T),
        "two back": builders.look_back(root / "two", 2, T),
    }


def test_negative_self_attention(constructed):
    """Layer 0's head shuns its own token; repeated tokens break it; all others are uniform."""
    result = ranked(constructed["dark"], different())
    values = {name: array[0, 0] for name, array in result.values.items() if array.ndim >= 2}

    assert "negative self-attention" == result.text_of("kind")[0][0]
    assert "dark main diagonal" == result.text_of("diagonal")[0][0]
    kinks = values["self_contrast"], values["previous_contrast"]
    assert (-12, 0, 1) == pytest.approx((*kinks, values["largest_offset"]), abs=1e-2)
    assert 0.950 == pytest.approx(values["largest_mass"], abs=1e-3)
    assert math.exp(-3) == pytest.approx(values["ratio"], abs=2e-3)
    assert 0.95 == pytest.approx(values["unrepeated_mass"], abs=0.01)
    assert math.exp(-9) * (1 - math.exp(-3)) == pytest.approx(values["repeated_mass"], rel=0.02)
    assert (-1.5, 12) == pytest.approx(
        (values["position_advantage"], values["content_advantage"]), abs=1e-2
    )
    assert 0.25 == float(result.values["share_previous"])
    for name, word in (("kind", "current token"), ("diagonal", "neither")):
        first, second = result.text_of(name)
        assert [word] * 3 == first[1:] + second


def test_aggregator(constructed):
    """Layer 1's head finds the code that layer 0's copied by position."""
    result = ranked(constructed["aggregator"], different())
    values = {name: array[1, 0] for name, array in result.values.items() if array.ndim >= 2}

    assert "aggregator" == result.text_of("kind")[1][0]
    assert "bright first diagonal" == result.text_of("diagonal")[1][0]
    kinks = values["self_contrast"], values["previous_contrast"]
    assert (0, 12, 1) == pytest.approx((*kinks, values["largest_offset"]), abs=1e-2)
    assert values["largest_mass"] > 0.999
    assert values["ratio"] < 1e-4
    assert "by position" == result.text_of("kind")[0][0]
    assert 0.5 == float(result.values["share_previous"])


@pytest.mark.parametrize(("name", "k", "kind"), [
    ("one back", 1, "by position"), ("two back", 2, "look back"),
])  # fmt: skip
def test_look_back(constructed, name, k, kind):
    result = ranked(constructed[name], builders.random_ids(5, T).numpy(), start_token=False)

    assert kind == result.text_of("kind")[0][0]
    assert k == result.values["largest_offset"][0, 0]
    assert result.values["largest_mass"][0, 0] > 0.999
    assert (k == 1) / 6 == pytest.approx(float(result.values["share_previous"]))
    np.testing.assert_allclose(result.values["content_profile"][0, 0], 0, atol=1e-2)
    assert "bright first diagonal" == result.text_of("diagonal")[0][0] or k == 2


@pytest.mark.parametrize(("content", "least", "kind"), [
    ((-1.0, -4.0, 1.0, 2.0), 0.5, 0),  # a dip at 0
    ((-1.0, 0.0, 9.0, 2.0), 0.5, 1),  # a peak at 1
    ((-1.0, 0.0, 1.0, 2.0), 0.0, 3),  # a straight line: neither
    ((-3.0, 0.0, 0.5, 3.0), 0.0, 3),  # below the line at 1, above it at 0
    ((-1.0, -0.3, 1.1, 2.0), 0.5, 3),  # a dip within its error
])  # fmt: skip
def test_kind_wants_a_dip_or_a_peak(content, least, kind):
    """By content, a head beyond layer 0 shuns itself, or aggregates, only if its scores show it."""
    profile = np.zeros((2, 1, 2 * BAND + 1))
    profile[1, 0, BAND - 1 : BAND + 3] = content
    values = {
        "largest_offset": np.ones((2, 1), int),
        "content_profile": profile,
        "content_advantage": np.array([[0.0], [1.0]]),
        "position_advantage": np.array([[0.0], [-1.0]]),
        "ratio": np.full((2, 1), 0.3),
    }

    assert kind == read_kind(values, np.full((2, 1, 2), least), 0.9)[1, 0]


OFFSETS = np.arange(-5, 8)


def test_the_kink_is_measured_against_the_straight_line():
    """A straight profile with k = 0 lowered by 2 and k = 1 raised by 0.5; only the band asked."""
    score = 1 - 0.1 * OFFSETS - 2 * (OFFSETS == 0) + 0.5 * (OFFSETS == 1)
    found = result(
        "previous-token",
        {},
        {"score_profile": score[None, None], "position_profile": OFFSETS[None, None] / 10},
        coordinates={"band": OFFSETS},
    )
    found.errors["score_profile"] = np.full((1, 1, 13), 0.05)
    figure = figure_of(found.select(layer=0, head=0), reach=4)
    shown = np.abs(OFFSETS) <= 4
    middle = score[shown] - score[shown].mean()

    current, previous = named(figure, "current token"), named(figure, "previous token")
    assert "−2.00" in current.name
    assert "+0.50" in previous.name
    check_curve(named(figure, "mean raw score"), OFFSETS[shown], middle)
    check_curve(current, [0], middle[4:5])
    check_curve(previous, [1], middle[5:6])
    line = named(figure, "line through")
    assert line.y[1] - line.y[0] == pytest.approx(-0.1 * (line.x[1] - line.x[0]))
    np.testing.assert_allclose(named(figure, "mean raw score").error_y.array, 0.05)
    np.testing.assert_allclose(named(figure, "by position").y, OFFSETS[shown] / 10, atol=1e-12)
