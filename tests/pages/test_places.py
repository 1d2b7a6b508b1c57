"""A widget keeps its place on a page while results arrive.

The browser keeps what stood in a box until the run of the script has ended. A widget that has moved
is there twice as long, and what is typed into the old one is lost.
"""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages import NAMES
from pages.shared.jobs import results
from poskernel_core.common.errors import ComputeDisabled
from tests.support.bound import bound, opened_as_linked


def places(app: AppTest) -> dict[str, tuple[int, ...]]:
    """Where the widget of each choice stands: the way to it from the top."""
    found: dict[str, tuple[int, ...]] = {}
    widgets = {id(each.proto): key for key, each in bound(app.main).items()}

    def look(node: Any, way: tuple[int, ...]) -> None:
        if key := widgets.get(id(getattr(node, "proto", None))):
            found[key] = way
        for place, child in getattr(node, "children", {}).items():
            look(child, (*way, place))

    look(app.main, ())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_widget_keeps_its_place(name, shipped_only, monkeypatch):
    """Every second result is not there yet, then the others: as where all are."""
    ask, asked = results.ask, []

    def note(request, *query):
        asked.append(request.question.name)
        return ask(request, *query)

    monkeypatch.setattr(results, "ask", note)
    whole = places(opened_as_linked(name))
    order = [*dict.fromkeys(asked)]
    assert order or name in ("own_text", "compare", "methods", "position_sources")
    for away in filter(None, (order[::2], order[1::2])):

        def some(request, *query, away=away):
            if request.question.name in away:
                raise ComputeDisabled("not yet")
            return ask(request, *query)

        monkeypatch.setattr(results, "ask", some)
        part = places(opened_as_linked(name))
        assert {key: whole[key] for key in part if key in whole} == {
            key: way for key, way in part.items() if key in whole
        }, away
