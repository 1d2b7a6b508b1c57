"""Every control of every page, as a script: a link holds each choice, and the page follows it."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.support.bound import bound, opened, other_value, walk

pytestmark = pytest.mark.slow

PAGES = (
    "interventions", "position_vs_token", "induction_recency", "previous_token",
    "contextual_neurons", "contextual", "explore",
)  # fmt: skip
"""Those with many controls of their own."""

SMALL = {"windows": "20", "context": "128"}
MORE: dict[str, dict[str, Any]] = {
    "explore": {"windows": "10"},
    "contextual": {"firstwindows": "8"},
    "contextual_neurons": {"firstwindows": "8"},
    "induction_recency": {"model": "demo-attn-2l", "samples": "100"},
    "position_vs_token": {"model": "demo-attn-2l", "samples": "100"},
}
"""What fills a page, or has less computed."""

CHOICES = ("button_group", "radio")
"""Of controls with few options all are tried, of others one."""

TYPED = ("text_input", "text_area")

FOLLOWED = {"preset"}
"""What writes other controls as it is chosen, and says nothing in a link."""

SHOWN = ("bidi_component", "dataframe", "html", "markdown", "metric", "caption", "info", "error")


def shown(app: AppTest) -> list[str]:
    return [said(each) for each in walk(app.main) if getattr(each, "type", "") in SHOWN]


def said(each: Any) -> str:
    """What an element says; the bytes of a table differ even where its cells do not."""
    if each.type == "dataframe":
        return str(each.value.to_csv())
    return getattr(each.proto, "json", "") or str(each.proto)


def others(widget: Any) -> list[list[str]]:
    """Other values than a widget's: of a few options all; of steps the next, which costs least."""
    if widget.type == "select_slider" and not isinstance(widget.value, tuple):
        steps = [str(each) for each in widget.options]
        place = steps.index(str(widget.value))
        return [steps[place - 1 : place] or steps[1:2]]
    if widget.type not in CHOICES or isinstance(widget.value, list):
        return [value for value in [other_value(widget)] if value != [str(widget.value)]]
    every = [str(getattr(each, "content", each)) for each in widget.options]
    return [[each] for each in every if each != str(widget.value)]


@pytest.mark.parametrize("name", PAGES)
def test_every_control(computed, name):
    """Those that another choice brings, too. What is typed may be refused, in a sentence."""
    ways, tried, idle = [SMALL | MORE.get(name, {})], set(), []
    while ways:
        link = ways.pop()
        app = opened(name, **link)
        assert [] == [each.value for each in (*app.exception, *app.error, *app.warning)]
        before, there = shown(opened(name, **link)), bound(app.main)
        assert before == shown(app)
        for key in there.keys() - tried - FOLLOWED:
            for value in others(there[key]):
                other = opened(name, **link | {key: value})
                wrong = [each.value for each in (*other.exception, *other.warning)]
                if there[key].type not in TYPED:
                    wrong += [each.value for each in other.error]
                if wrong or shown(other) == before:
                    idle.append((key, value, wrong))
                if bound(other.main).keys() - there.keys() - tried:
                    ways.append(link | {key: value})
        tried |= there.keys()
    assert [] == idle
