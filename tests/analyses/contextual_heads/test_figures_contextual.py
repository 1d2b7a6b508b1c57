"""The figures of contextual heads, of distances between kernels, and of additivity."""

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses.additivity import figures as added
from poskernel_core.analyses.contextual_heads.figures import (
    denominators_figure,
    duplicates_figure,
    plane_figure,
    variation_figure,
    weights_figure,
)
from poskernel_core.analyses.kernels.figures import distances_figure
from tests.support import made_contextual as made
from tests.support.made_results import named


def groups(figure: go.Figure) -> list[go.Scatter]:
    """The marks of the groups."""
    return [trace for trace in figure.data if trace.name != "chosen"]


def test_the_plane_shows_every_head_once() -> None:
    """ETC to the right, CV upwards, with its error; colours and symbols differ by group."""
    found = made.heads()
    figure = plane_figure(found, 2, 1, 0.5, 0.4)
    shown = []
    for code, (trace, label) in enumerate(zip(groups(figure), found.labels["group"], strict=True)):
        at = tuple(np.argwhere(found.values["group"] == code).T)
        assert f"{label} ({len(at[0])})" == trace.name
        np.testing.assert_array_equal(found.values["etc"][at], trace.x)
        np.testing.assert_array_equal(found.values["denominator_cv"][at], trace.y)
        np.testing.assert_array_equal(found.errors["denominator_cv"][at], trace.error_y.array)
        shown += [tuple(place) for place in trace.customdata]
    assert sorted(shown) == [(layer, head) for layer in range(3) for head in range(5)]
    assert {"log"} == {figure.layout.xaxis.type, figure.layout.yaxis.type}


def test_the_plane_rings_the_chosen_and_fills_the_region() -> None:
    """From the threshold of ETC on, up to that of the CV."""
    found = made.heads()
    figure = plane_figure(found, 2, 1, 0.5, 0.4)
    ring = named(figure, "chosen")
    assert [found.values["etc"][2, 1]] == list(ring.x)
    assert [found.values["denominator_cv"][2, 1]] == list(ring.y)
    assert "<b>L2H1</b>" == ring.text[0]
    across, up, region = figure.layout.shapes
    assert (0.5, 0.5, 0.4, 0.4) == (across.x0, across.x1, up.y0, up.y1)
    assert (0.5, 0.4) == (region.x0, region.y1)
    assert region.y0 == pytest.approx(10 ** figure.layout.yaxis.range[0])
    assert region.x1 == pytest.approx(10 ** figure.layout.xaxis.range[1])


def test_the_name_of_the_chosen_stands_inside() -> None:
    """Right of a mark in the left half, left of one in the right half."""
    found = made.heads()
    order = np.argsort(found.values["etc"], axis=None)
    for at, side in ((order[0], "right"), (order[-1], "left")):
        layer, head = (int(place) for place in np.unravel_index(at, found.values["etc"].shape))
        trace = named(plane_figure(found, layer, head, 0.5, 0.4), "chosen")
        assert f"middle {side}" == trace.textposition


def test_the_plane_tells_numbers_with_errors() -> None:
    """Name, ETC, CV, prediction and group."""
    found = made.heads()
    for name, value in (("etc", 123.4), ("denominator_cv", 0.25), ("predicted_cv", 0.125)):
        found.values[name][1, 3] = value
    found.errors["denominator_cv"][1, 3] = 0.02
    trace = plane_figure(found, 0, 0, 30, 0.25).data[0]
    (text,) = (text for text in trace.text if "L1H3" in text)
    assert "<b>L1H3</b>, duplicate token<br>ETC 123.4<br>CV 0.250 ± 0.020" in text
    assert text.endswith("predicted CV 0.125")


@pytest.mark.parametrize("steady", [0.0, 0.4])
def test_variations_of_zero_stand_at_the_edge_and_undefined_ones_are_told(steady: float) -> None:
    """A log axis has no zero; no bar reaches it either."""
    found = made.heads()
    found.values["denominator_cv"][0, 0] = found.errors["denominator_cv"][0, 0] = 0.0
    found.values["denominator_cv"][0, 1] = np.nan
    found.errors["denominator_cv"][0, 2] = 5.0
    figure = plane_figure(found, 0, 0, 0.5, steady)
    low = 10 ** figure.layout.yaxis.range[0]
    every = np.concatenate([trace.y for trace in groups(figure)])
    minus = np.concatenate([trace.error_y.arrayminus for trace in groups(figure)])
    assert 14 == len(every)
    assert low < every.min() == named(figure, "chosen").y[0]
    assert (every > minus).all()
    assert "1 without a CV" in figure.layout.title.text
    assert "CV 0<br>" in groups(figure)[0].text[0]
    assert plane_figure(found, 0, 1, 0.5, steady).data


@pytest.mark.parametrize("value", [0.0, np.nan, 2.3])
def test_a_plane_of_one_head(value: float) -> None:
    """Without any CV above 0 as well."""
    found = made.heads(1, 1)
    found.values["denominator_cv"][:] = value
    figure = plane_figure(found, 0, 0, 30, 0.25)
    assert np.isfinite(figure.layout.yaxis.range).all()
    assert figure.layout.xaxis.tickvals


def test_variation_along_positions_beside_the_prediction() -> None:
    """Against the query, with a band; the prediction is dashed."""
    found = made.denominators()
    figure = variation_figure(found)
    observed, predicted = named(figure, "observed"), named(figure, "predicted")
    for curve, name in ((observed, "denominator_cv"), (predicted, "predicted_cv")):
        np.testing.assert_array_equal(found.coordinates["query"], curve.x)
        np.testing.assert_array_equal(found.values[name], curve.y)
    band = next(trace for trace in figure.data if trace.name == "observed ± 1 s.e. + 1 s.e.")
    np.testing.assert_allclose(1.1 * found.values["denominator_cv"], band.y)


@pytest.mark.parametrize("log_y", [False, True])
def test_denominators_of_all_windows_in_one_trace(log_y: bool) -> None:
    """A gap after each window; mean and own texts are apart, and titles are not markup."""
    found = made.denominators()
    figure = denominators_figure(found, log_y)
    texts = named(figure, "11 windows")
    drawn = np.reshape(texts.y, (made.TEXTS, made.QUERIES + 1))
    np.testing.assert_array_equal(found.values["denominator"], drawn[:, :-1])
    assert np.isnan(drawn[:, -1]).all()
    places = np.reshape(texts.x, drawn.shape)
    np.testing.assert_array_equal(found.coordinates["query"], places[3, :-1])
    np.testing.assert_array_equal(found.values["mean"], named(figure, "mean").y)
    for index in range(2):
        own = named(figure, f"&lt;i&gt;text&lt;/i&gt; {index}")
        np.testing.assert_array_equal(found.values["own_denominator"][index], own.y)
        np.testing.assert_array_equal(found.coordinates["query"], own.x)


def test_denominators_without_own_texts() -> None:
    """The result then holds no such value."""
    assert 4 == len(denominators_figure(made.denominators(0)).data)


def test_copies_by_distance() -> None:
    """Two curves with error bars, ticks at the distances."""
    found = made.heads()
    figure = duplicates_figure(found, 2, 4)
    for label, name in (("the same", "duplicate_attention"), ("another", "baseline")):
        curve = named(figure, label)
        np.testing.assert_array_equal(found.coordinates["distance"], curve.x)
        np.testing.assert_array_equal(found.values[name][2, 4], curve.y)
        np.testing.assert_array_equal(found.errors[name][2, 4], curve.error_y.array)
    assert ["2", "4", "8"] == list(figure.layout.xaxis.ticktext[:3])
    assert "log" == figure.layout.xaxis.type


@pytest.mark.parametrize("count", [1, 2, made.TOKENS])
def test_weights_are_counted_in_round_steps(count: int) -> None:
    """Every token once, NaN left out; a line at 0."""
    found = made.weights(count)
    values = found.values["log_weight"]
    figure = weights_figure(found)
    bars = figure.data[0]
    assert count == np.sum(bars.y)
    for (low, high), number in zip(bars.customdata, bars.y, strict=True):
        assert number == np.sum((values >= low) & (values < high))
    assert f"{float(bars.width):.0e}"[0] in "125"
    assert 0 == figure.layout.shapes[0].x0
    values[:] = np.nan
    assert not len(weights_figure(found).data[0].y)


def test_distances_with_groups_together() -> None:
    """Rows and columns in the same order; a red square around each group of two or more."""
    found = made.distances()
    figure = distances_figure(found, 1)
    order = [0, 2, 1, 4, 3]
    cells = figure.data[0]
    np.testing.assert_array_equal(found.values["distance"][1][np.ix_(order, order)], cells.z)
    error = found.errors["distance"][1][np.ix_(order, order)]
    np.testing.assert_array_equal(error, cells.customdata)
    assert (0, 1) == (cells.zmin, cells.zmax)
    assert [f"L1H{head}" for head in order] == list(figure.layout.xaxis.ticktext)
    assert figure.layout.yaxis.ticktext == figure.layout.xaxis.ticktext
    squares = [(s.x0, s.x1, s.y0, s.y1) for s in figure.layout.shapes]
    assert 2 * [(-0.5, 1.5, -0.5, 1.5)] + 2 * [(1.5, 3.5, 1.5, 3.5)] == squares
    assert "L1H0 – L1H2" in cells.text[0][1]
    assert "±" in cells.text[0][1]


@pytest.mark.parametrize("per_layer", [1, 67])
def test_distances_of_one_head_and_of_many(per_layer: int) -> None:
    """Errors may be undefined; many heads have fewer names."""
    found = made.distances(1, per_layer)
    found.errors["distance"][:] = np.nan
    figure = distances_figure(found, 0)
    assert len(figure.layout.xaxis.ticktext) <= 32
    assert "nan" not in figure.data[0].text[0][0]


def test_shares_of_the_keys_variance() -> None:
    """Stacked from the bottom: position, content, rest."""
    found = made.additivity()
    figure = added.shares_figure(found, 1)
    names = ("position_share", "content_share", "interaction_share")
    assert "stack" == figure.layout.barmode
    for bars, name in zip(figure.data, names, strict=True):
        np.testing.assert_array_equal(found.values[name][1], bars.y)
        assert [f"L1H{head}" for head in range(made.HEADS)] == list(bars.x)
        assert all("±" in text for text in bars.text)
    assert 3 == len({bars.marker.pattern.shape for bars in figure.data})
    found.values["interaction_share"][1] = found.errors["interaction_share"][1] = np.nan
    assert "not defined" == added.shares_figure(found, 1).data[2].text[0]


@pytest.mark.parametrize(("least", "low"), [(0.5, 0.0), (-0.8, -0.945)])
def test_drift_of_content(least: float, low: float) -> None:
    """Against the shift, with a band; the axis goes below 0 where values do."""
    found = made.additivity()
    found.values["content_similarity"][2, 3] = np.linspace(1, least, made.QUERIES)
    found.errors["content_similarity"][2, 3] = 0.1
    figure = added.similarity_figure(found, 2, 3)
    curve = named(figure, "content")
    np.testing.assert_array_equal(found.coordinates["shift"], curve.x)
    np.testing.assert_array_equal(found.values["content_similarity"][2, 3], curve.y)
    assert (pytest.approx(low), 1.05) == tuple(figure.layout.yaxis.range)
    found.errors.pop("content_similarity")
    assert added.similarity_figure(found, 2, 3).layout.yaxis.range[0] == min(0, 1.05 * least)
