"""Raw scores by offset as a figure: the kink at the current and the previous token."""

import numpy as np
import pytest

from poskernel_core.analyses.previous_token.figures import scores_figure
from tests.support.made_results import named, result

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
    assert "current token: −2.00 off the line" == current.name
    assert "previous token: +0.50 off the line" == previous.name
    mean = named(figure, "mean raw score")
    np.testing.assert_array_equal(OFFSETS[shown], mean.x)
    np.testing.assert_allclose(mean.y, middle)
    assert [(0, middle[4]), (1, middle[5])] == [(m.x[0], m.y[0]) for m in (current, previous)]
    line = named(figure, "line through")
    assert line.y[1] - line.y[0] == pytest.approx(-0.1 * (line.x[1] - line.x[0]))
    upper = next(trace for trace in figure.data if trace.name == "± 1 s.e.")
    np.testing.assert_allclose(upper.y, middle + 0.05)
    np.testing.assert_allclose(named(figure, "by position").y, OFFSETS[shown] / 10, atol=1e-12)
