"""Figures of raw scores, the tangent picture, and what an intervention does."""

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses.interventions.figures import (
    kl_by_position,
    loss_by_group,
    loss_by_position,
    next_token_bars,
    percent,
)
from poskernel_core.plotting.layout import quoted
from poskernel_core.plotting.scores import score_profile_figure, tangent_figure

OFFSETS = np.arange(-5, 8)

PART = OFFSETS / 10


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The first trace whose name starts with `name`."""
    return next(trace for trace in figure.data if trace.name and trace.name.startswith(name))


def titles(figure: go.Figure) -> tuple[str, str]:
    """The titles of the x-axis and the y-axis."""
    return figure.layout.xaxis.title.text, figure.layout.yaxis.title.text


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.99123, "99.1 %"), (0.00042, "0.042 %"), (1e-6, "< 0.01 %"), (0.0, "0 %"), (1.0, "100 %")],
)
def test_percent_is_short(probability: float, text: str) -> None:
    """Three digits from 1 % on, two below."""
    assert text == percent(probability)


def test_tangent_figure_is_relative_to_the_mean_with_the_future_on_the_left() -> None:
    """Each part without its mean; the future ends left of the dotted line at 0."""
    observed = np.where(OFFSETS == 0, -3.0, PART)
    figure = tangent_figure(OFFSETS, PART + 7, PART, 0 * PART, 0 * PART, observed, title="L2H2")
    score = named(figure, "position only")
    np.testing.assert_array_equal(OFFSETS, score.x)
    np.testing.assert_allclose(PART - PART.mean(), score.y, atol=1e-12)
    assert ("dash", "markers" in named(figure, "raw score").mode) == (
        named(figure, "tangent").line.dash, True,
    )  # fmt: skip
    line, shade = figure.layout.shapes
    assert ("dot", 0) == (line.line.dash, line.x0)
    assert -0.5 == shade.x1
    assert shade.x0 <= OFFSETS.min()
    assert "future, masked" in [note.text for note in figure.layout.annotations]
    assert (
        "offset k = n − i (tokens), future keys < 0",
        "score − its mean (natural log of attention)",
    ) == titles(figure)
    hidden = ["third direction and rest", "radial part"]
    for dots in (observed, None):
        lines = tangent_figure(OFFSETS, *[PART] * 4, dots, title="").data
        assert hidden == [line.name for line in lines if line.visible == "legendonly"]
        assert 4 + (dots is not None) == len(lines)


@pytest.mark.parametrize(
    ("radial", "rest", "hidden"),
    [
        (2, 0.9, ["third direction and rest"]),
        (0.9, 2, ["radial part"]),
        (3, 2, []),
        (0.5, 0, ["third direction and rest", "radial part"]),
    ],
)
def test_a_part_larger_than_the_tangent_is_not_hidden(radial, rest, hidden) -> None:
    """What varies most over the band is seen at once; what varies less waits for a click."""
    moved = PART + 100  # means do not count
    lines = tangent_figure(OFFSETS, PART, PART, -radial * moved, rest * moved, None, title="").data
    assert hidden == [line.name for line in lines if line.visible == "legendonly"]


def test_score_profile_measures_the_kink_against_the_straight_line() -> None:
    """A straight profile with k = 0 lowered by 2 and k = 1 raised by 0.5."""
    mean = 1 - 0.1 * OFFSETS - 2 * (OFFSETS == 0) + 0.5 * (OFFSETS == 1)
    figure = score_profile_figure(OFFSETS, mean, np.full(13, 0.05), title="kink")
    current, previous = named(figure, "current token"), named(figure, "previous token")
    assert "current token: −2.00 off the line" == current.name
    assert "previous token: +0.50 off the line" == previous.name
    assert (0, mean[OFFSETS == 0][0]) == (current.x[0], current.y[0])
    line = named(figure, "line through")
    np.testing.assert_allclose(line.y, 1 - 0.1 * np.array(line.x))
    assert "dash" == line.line.dash
    np.testing.assert_allclose(figure.data[0].y, mean - 0.05)
    np.testing.assert_allclose(named(figure, "± 1 s.e.").y, mean + 0.05)
    low, high = figure.layout.xaxis.range
    assert low < -5 < 7 < high
    assert -0.5 == figure.layout.shapes[1].x1
    assert "offset k = n − i (tokens), future keys < 0" == figure.layout.xaxis.title.text


def test_next_token_bars_are_sorted_by_the_clean_run() -> None:
    """In percent, likeliest on top, with values as text; equal names keep their own bars."""
    figure = next_token_bars(
        ["x", " pirate", " turtle", "x"],
        np.array([0.001, 0.004, 0.99, 0.002]),
        np.array([0.0, 0.65, 0.26, 0.03]),
    )
    clean, changed = figure.data
    np.testing.assert_allclose(clean.x, [99, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(changed.x, [26, 65, 3, 0])
    axis = figure.layout.yaxis
    assert tuple(map(quoted, (" turtle", " pirate", "x", "x"))) == tuple(axis.ticktext)
    assert 4 == len(set(axis.tickvals))
    assert "reversed" == axis.autorange
    assert ("26 %", "65 %", "3 %", "0 %") == tuple(changed.text)
    assert changed.marker.pattern.shape != clean.marker.pattern.shape
    assert "probability of the next token (%)" == figure.layout.xaxis.title.text
    assert figure.layout.xaxis.range[1] > 99


def test_loss_and_kl_by_position_have_nats() -> None:
    """Clean solid, changed dotted."""
    at = np.arange(3, 6)
    figure = loss_by_position(at, np.array([3.0, 2, 1]), np.array([4.0, 3, 2]), title="loss")
    clean, changed = named(figure, "clean"), named(figure, "changed")
    np.testing.assert_array_equal(at, clean.x)
    np.testing.assert_array_equal([4, 3, 2], changed.y)
    assert clean.line.dash != changed.line.dash
    assert 1 == figure.layout.xaxis.dtick  # no tick between two positions
    long = np.arange(14)
    assert loss_by_position(long, long / 1.0, long / 1.0, title="").layout.xaxis.dtick is None
    assert ("position (tokens)", "loss (nats per token)") == titles(figure)
    kl = kl_by_position(at, np.array([0.1, 0.2, 0.3]), title="KL")
    assert ("position (tokens)", "KL(clean ‖ changed) (nats)") == titles(kl)


def test_loss_by_group_marks_the_clean_run() -> None:
    """Sorted on a log axis with a tick per group; a group of 1 has its own mark and level."""
    figure = loss_by_group(
        np.array([10, 1, 5]), np.array([3.5, 3.0, 3.2]), np.array([0.3, 0.1, 0.2]), title="loss"
    )
    (line,) = figure.data
    np.testing.assert_array_equal([1, 5, 10], line.x)
    np.testing.assert_array_equal([3.0, 3.2, 3.5], line.y)
    np.testing.assert_array_equal([0.1, 0.2, 0.3], line.error_y.array)
    assert ["diamond", "circle", "circle"] == list(line.marker.symbol)
    assert 3.0 == figure.layout.shapes[0].y0
    assert ("log", ("1", "5", "10")) == (
        figure.layout.xaxis.type, tuple(figure.layout.xaxis.ticktext)
    )  # fmt: skip
    assert "loss (nats per token)" == figure.layout.yaxis.title.text
    without = loss_by_group(np.array([5]), np.array([3.2]), np.array([0.2]), title="")
    assert not without.layout.shapes
