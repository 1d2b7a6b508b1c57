"""The figures of contextual heads, of distances between kernels, and of additivity."""

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses.views import figure_of
from tests.support.made_results import answer, check_curve, named


def groups(figure: go.Figure) -> list[go.Scatter]:
    """The marks of the groups."""
    return [trace for trace in figure.data if trace.name != "chosen"]


def test_the_plane_shows_every_head_once() -> None:
    found = answer("contextual-heads", sizes={"layer": 3, "head": 5}, broad=0.5, steady=0.4)
    figure = figure_of(found, place=(2, 1))
    shown = []
    for code, trace in enumerate(groups(figure)):
        at = tuple(np.argwhere(found.values["group"] == code).T)
        cv, error = (part["denominator_cv"][at] for part in (found.values, found.errors))
        check_curve(trace, found.values["etc"][at], cv, error)
        shown += [tuple(place) for place in trace.customdata]
    assert sorted(shown) == [(layer, head) for layer in range(3) for head in range(5)]
    ring = named(figure, "chosen")
    check_curve(ring, [found.values["etc"][2, 1]], [found.values["denominator_cv"][2, 1]])


def test_variations_of_zero_stand_at_the_edge_and_undefined_ones_are_told() -> None:
    """A log axis has no zero; no bar reaches it either."""
    found = answer("contextual-heads", sizes={"layer": 3, "head": 5}, broad=0.5, steady=0.0)
    found.values["denominator_cv"][0, 0] = found.errors["denominator_cv"][0, 0] = 0.0
    found.values["denominator_cv"][0, 1] = np.nan
    found.errors["denominator_cv"][0, 2] = 5.0
    figure = figure_of(found, place=(0, 0))
    low = 10 ** figure.layout.yaxis.range[0]
    every = np.concatenate([trace.y for trace in groups(figure)])
    minus = np.concatenate([trace.error_y.arrayminus for trace in groups(figure)])
    assert 14 == len(every)
    assert low < every.min() == named(figure, "chosen").y[0]
    assert (every > minus).all()


@pytest.mark.parametrize("count", [1, 97])
def test_weights_are_counted_in_round_steps(count: int) -> None:
    found = answer("token-weights", sizes={"token": count})
    values = found.values["log_weight"]
    values -= 0.5
    figure = figure_of(found)
    bars = figure.data[0]
    assert count == np.sum(bars.y)
    for (low, high), number in zip(bars.customdata, bars.y, strict=True):
        assert number == np.sum((values >= low) & (values < high))
    values[:] = np.nan
    assert not len(figure_of(found).data[0].y)


def test_distances_with_groups_together() -> None:
    found = answer("kernel-distances", sizes={"head": 5, "other": 5})
    found.values["group"][:] = [0, 1, 0, 2, 1]
    figure = figure_of(found.select(layer=1))
    order = [0, 2, 1, 4, 3]
    cells = figure.data[0]
    np.testing.assert_array_equal(found.values["distance"][1][np.ix_(order, order)], cells.z)
    error = found.errors["distance"][1][np.ix_(order, order)]
    np.testing.assert_array_equal(error, cells.customdata)
    assert [f"L1H{head}" for head in order] == list(figure.layout.xaxis.ticktext)
