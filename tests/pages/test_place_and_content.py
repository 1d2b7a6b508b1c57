"""Place and content on Overview and Explore, as scripts; models without rotation offer neither."""

import pytest

from tests.pages.test_rotary import said, show  # noqa: F401  (a fixture)
from tools.recorded import figures_on

SMALL = {"context": "53", "windows": "20"}
TITLE = "Place, content, and both together"
WORDS = "Not computed yet: the shares of place and content."


def press(app):
    next(each for each in app.button if each.key == "compute-places").click().run()
    assert ([], []) == ([*app.exception], [*app.error])


@pytest.mark.slow
def test_overview(show, rotary):  # noqa: F811
    app = show("head", model=rotary, head="L1H2", **SMALL)
    assert WORDS in said(app)
    assert "places" not in figures_on(app)
    press(app)
    assert "places" in figures_on(app)
    assert WORDS not in said(app)
    assert "arrange=place+and+content" in said(app)


@pytest.mark.slow
def test_the_plane_on_explore(show, rotary):  # noqa: F811
    asked = SMALL | {"skip": "2", "arrange": "place and content"}
    app = show("explore", model=rotary, head="L1H2", **asked)
    assert WORDS in said(app)
    assert "heads" not in figures_on(app)
    press(app)
    assert ["heads"] == figures_on(app)
    (table,) = (each.value for each in app.dataframe)
    shares = table[[f"{name} (share of variance)" for name in
                    ("place share", "content share", "share of both together")]]  # fmt: skip
    assert shares.shape == (18, 3)
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1)


def test_other_schemes(show):  # noqa: F811
    assert TITLE not in said(show("head", model="demo-attn-2l", context="64", windows="20"))
    app = show("explore", model="demo-attn-2l", context="64", windows="20")
    (arrange,) = (each for each in app.button_group if each.key == "arrange")
    assert ["two measures", "near kernels"] == [*arrange.options]
