"""The helix page as a script: layers, texts, groups and overlays in its figures and tables."""

import re

import pytest

from poskernel_core.analyses.helix.figures import OVERLAYS, OWN_AXES
from tests.support.bound import bound, figure_on, fine, headings, opened

CONTEXT = 128


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("computed")]


def show(**link):
    return fine(opened("helix", context=CONTEXT, windows="20", rtok="20", hl="3", **link))


def points(app):
    """The traces of the helix, and how many positions each has."""
    return {each.name: len(each.x) for each in figure_on(app, "helix").data}


def test_positions_drawn():
    """Of real texts, the start token's position is left out; groups cut by the range are, too."""
    app = show()
    assert "Positions before layer 3" in headings(app)
    assert {CONTEXT} == set(points(app).values())
    app = show(prompts="windows of the corpus")
    assert (1, {CONTEXT - 1}) == (bound(app)["span"].value[0], set(points(app).values()))
    found = points(show(span=["2", "126"], avg="10"))
    assert (CONTEXT - 1) // 10 - 1 == found.pop("group averages")
    assert {CONTEXT - 3} == set(found.values())
    assert 1 == bound(show(out="1"))["span"].value[0]


def test_overlays():
    for overlay in [*OVERLAYS][1:]:
        found = points(show(overlay=overlay, avg="10"))
        assert {"W_pos", "before layer 3"} <= found.keys()
        assert ("group averages" in found) == (overlay in OWN_AXES)


def test_subspaces_and_far_positions():
    app = show(k="4", far="1.5")
    assert any("top-4 subspaces" in each for each in headings(app))
    (angles,) = (each.value for each in app.dataframe if "angles" in each.value)
    assert re.fullmatch(r"[\d.]+°(, [\d.]+°){3}", angles.iloc[0, -1])
    names = [each.name or "" for each in figure_on(app, "shape").data]
    assert any("beyond 1.5 × rms" in name for name in names)
