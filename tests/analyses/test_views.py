"""Every view fits its answer, draws what it names, says nothing that its errors leave open."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.definitions import values_of
from poskernel_core.analyses.views import ANY, figure_of, topic, view_of, why_empty
from tests.analyses.test_figures import made
from tests.support.made_findings import check

VIEWS = [
    (name, view) for name in ANALYSES for view in getattr(topic(name), "VIEWS", {}).get(name, ())
]
IDS = [f"{name}: {view.shape}" for name, view in VIEWS]


def fitting(name, view):
    """A made answer, at the places where it has the shape that a view needs, and no other value."""
    part = made(name)
    for value, axes in view.shapes:
        for axis in part.axes[value]:
            if axes != ANY and axis in part.axes[value] and axis not in axes:
                known = part.coordinates.get(axis)
                part = part.select(**{axis: 8 if axis == "query" and known is None else
                                      1 if known is None else int(known[1])})  # fmt: skip
    part = part.only(*dict(view.shapes))
    assert view.fits(part), part.axes
    return part


def bars_of(figure):
    """What the colour bars of a figure say."""
    above = [each.text for each in figure.layout.annotations if each.name == "unit"]
    maps = [each for each in figure.data if each.type == "heatmap" and each.showscale is not False]
    return [each.colorbar.title.text or "".join(above) for each in maps]


@pytest.mark.parametrize(("name", "view"), VIEWS, ids=IDS)
def test_a_view(name, view):
    """Its picture needs what its shape names alone; its sentence has the form of a sentence.

    A colour bar says what it measures, and a share is the share that its value declares.
    """
    part = fitting(name, view)
    if view.draw:
        figure = figure_of(part)
        assert isinstance(figure, go.Figure)
        assert figure.data
        for bar in bars_of(figure):
            assert bar
            assert bar in part.units.values() or not bar.startswith("share of ")
    if view.says and (sentence := view.says(part)):
        check(sentence)


@pytest.mark.parametrize(("name", "view"), VIEWS, ids=IDS)
def test_where_all_errors_are_wide_nothing_is_said(name, view):
    """Numbers that have no errors are exact."""
    uncertain = {value.name for value in ANALYSES[name].values if value.has_error}
    if not view.says or uncertain.isdisjoint(dict(view.shapes)):
        return
    part = fitting(name, view)
    wide = {value: np.full_like(error, 99.0) for value, error in part.errors.items()}
    assert wide
    assert not view.says(replace(part, errors=wide))


@pytest.mark.parametrize(("name", "view"), VIEWS, ids=IDS)
def test_what_a_reading_explains_is_declared(name, view):
    assert all(values_of(name, value) for value in view.explains.split())


@pytest.mark.parametrize(("name", "view"), VIEWS, ids=IDS)
def test_no_view_hides_another(name, view):
    """Each is the first that fits what it is about."""
    part = fitting(name, view)
    for what in ("draw", "says", "reading"):
        assert not getattr(view, what) or view_of(part, what) is view, what


def test_why_a_part_has_no_number():
    """Its layer has no heads, or no key is left; else it is not known."""
    one = made("kernel").select(layer=1, head=2)
    assert "" == why_empty(one)
    bare = made("kernel").without_heads({1: "recurrent"})
    assert "Layer 1 has no heads: it is recurrent." == why_empty(bare.select(layer=1, head=2))
    assert "" == why_empty(bare.select(layer=0, head=2))
    late = replace(one, params=one.params | {"skip": 11})
    assert "No key is left at n = 10: the first 11 keys are skipped." == why_empty(late)


def test_a_measure_over_positions_needs_no_view():
    """Its picture has the measure as its title, the head, units with errors, recorded places."""
    whole = made("entropy")
    one = whole.select(layer=1, head=2)
    figure = figure_of(one)
    assert "L1H2: attention entropy" == figure.layout.title.text
    axes = figure.layout.xaxis.title.text, figure.layout.yaxis.title.text
    assert ("query position n (tokens)", "nats ± 1 s.e.") == axes
    assert one.coordinates["query"].tolist() == [*figure.data[-1].x]
    for more in (whole, whole.select(layer=1)):  # every head is a curve
        assert len(figure_of(more).data) > len(figure.data)
