"""The page on sources of position, as a script: a button for each question, then figures."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.cards.show import pick_head
from tests.support.bound import fine, opened_as_linked, press, walk
from tools.recorded import figures_on

PAGE = "position_sources"
SMALL = {"context": "41", "windows": "20"}


@pytest.fixture
def show(computed):
    def go(**parameters: str) -> AppTest:
        return fine(opened_as_linked(PAGE, **SMALL, **parameters))

    return go


@pytest.mark.slow
def test_one_head_and_all_heads(show):
    """Nothing runs before a press; all heads bring the bars, one head brings the map."""
    app = show(model="demo-attn-2l", head="L1H1", query="31")
    assert [] == figures_on(app)

    press(app, "compute-sources")
    assert ["graph", "sources"] == sorted(figures_on(app))
    told = next(each.value for each in app.markdown if each.value.startswith("Largest shares: "))
    assert "[L0H6](position_sources?" in told
    assert "positional embedding 0." in told
    assert "[positional" not in told
    (left,) = (each.value for each in app.caption if each.value.startswith("Not computed yet"))
    assert "by offset" in left
    drawn = [getattr(each, "value", None) or getattr(each, "key", "") for each in walk(app)]
    assert drawn.index(told) < drawn.index(left) < drawn.index("compute-head-sources")

    press(app, "compute-head-sources")
    assert ["graph", "sources", "sources-map"] == sorted(figures_on(app))


@pytest.mark.slow
def test_a_rotary_model_has_the_parts_of_its_shares(show, monkeypatch, rotary):
    monkeypatch.setenv("POSKERNEL_MODELS", rotary)
    app = press(show(model=rotary, head="L1H2", query="31", skip="0"), "compute-head-sources")
    told = [each.value for each in app.markdown]
    known = any(each.startswith("Largest shares: ") for each in told)
    assert known != any(each.startswith(":small[No shares are given") for each in told)
    assert known == ("turning" in figures_on(app))


def test_only_heads_are_selected(monkeypatch):
    written = []
    monkeypatch.setattr("pages.shared.cards.show.select_head", written.append)
    for name in ("L1H2", "MLP 0", "token embedding"):
        pick_head([name], False)
    assert written == ["L1H2"]
