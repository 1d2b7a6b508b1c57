"""Raw scores by offset as a figure: the kink at the current and the previous token."""

import numpy as np
import pytest

from poskernel_core.analyses.previous_token.figures import scores_figure
from tests.support.made_results import check_curve, named, result

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
    figure = scores_figure(found.select(layer=0, head=0), "kink", 4)
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
