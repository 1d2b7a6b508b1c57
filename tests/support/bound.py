"""Choices that are in the address: their widgets, and other values that they could hold."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import plotly.graph_objects as go
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Widget

from pages.shared.cards.card import OPENED
from pages.shared.choices.choices import KEPT
from pages.shared.look.fold import UNFOLDED
from tests.support.server import ROOT
from tools.recorded import FIGURE, open_page

FIRST = {"model": "demo-gpt2"}
MODELS = {"over_training": {"model": "demo-training"}, "rotary_spectrum": {"model": "demo-rotary"}}
TYPED = "blue fire water"


def opened(name: str, **parameters: Any) -> AppTest:
    """A page, drawn as a script, of a model that fills it unless a model is given."""
    return opened_as_linked(name, **(FIRST | MODELS.get(name, {}) | parameters))


def opened_as_linked(name: str = "", *, unfolded: str = "", **parameters: Any) -> AppTest:
    """A page, drawn as a script, by a link with these parameters alone; the first unless named.

    ``unfolded`` is the key of what is open.
    """
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    if unfolded:
        app.session_state[UNFOLDED] = {unfolded}
    for parameter, value in parameters.items():
        app.query_params[parameter] = value
    return open_page(app, name) if name else app.run()


def fine(app: AppTest) -> AppTest:
    """The page, on which nothing complains."""
    assert ([], []) == ([*app.exception], [*app.error])
    return app


def press(app: AppTest, key: str) -> AppTest:
    """The page once one of its buttons was pressed; nothing complains."""
    return fine(app.button(key=key).click().run())


def with_menu(app: AppTest, card: str) -> AppTest:
    """The page once the menu of a card was opened; nothing complains."""
    app.session_state[OPENED] = (card, app.session_state["selection"])
    return fine(app.run())


def words(app: AppTest) -> str:
    """What a page says, a line for each text, with its links."""
    texts = [each.value for each in (*app.markdown, *app.caption, *app.info)]
    texts += (head["finding"] for head in heads_of_cards(app))
    return "\n".join(texts).replace("\\", "")


def bound(node: Any) -> dict[str, Widget]:
    """The widgets of choices on a page that was run, or on a part of it, by their parameters."""
    app = node if isinstance(node, AppTest) else node.root._runner
    widgets = (each for each in walk(node) if isinstance(each, Widget) and each.key)
    named = ((each.key.partition("~")[0], each) for each in widgets)
    return {key: each for key, each in named if key in app.session_state[KEPT].met}


def positions(app: AppTest) -> list[int]:
    """The query positions on offer."""
    (found,) = (
        json.loads(each.proto.json)["queries"]
        for each in app.sidebar.get("bidi_component")
        if each.proto.component_name == "pk-position"
    )
    return [int(each) for each in found]


def chosen(app: AppTest, key: str) -> Any:
    """What is chosen, with a widget or without."""
    session = app.session_state[KEPT]
    return session.choices.values.get(key, session.defaults.get(key))


def choose(app: AppTest, key: str, value: Any) -> AppTest:
    """The page once a choice has changed that the browser draws itself."""
    session = app.session_state[KEPT]
    session.choices = session.choices.with_value(key, value, session.defaults.get(key))
    return app.run()


def figure_on(app: AppTest, name: str) -> go.Figure:
    """A figure of a page that was run."""
    (found,) = (data for key, data in _drawn(app) if key == f"figure-{name}")
    return go.Figure(json.loads(found["spec"], object_hook=_array))


def heads_of_cards(app: AppTest) -> list[dict[str, str]]:
    """The title, finding and anchor of each card of a page that was run."""
    return [data["head"] for _, data in _drawn(app) if "head" in data]


def _drawn(app: AppTest) -> Iterator[tuple[str, dict[str, Any]]]:
    """The key and the data of what draws figures and the heads of cards."""
    for each in app.get("bidi_component"):
        if each.proto.component_name == FIGURE:
            kind = re.search(r"-((?:figure|head)-.*)$", each.proto.id)
            yield kind[1], json.loads(each.proto.json)


def _array(found: dict[str, Any]) -> Any:
    """Numbers are packed by Plotly."""
    if "bdata" not in found:
        return found
    numbers = np.frombuffer(base64.b64decode(found["bdata"]), found["dtype"])
    return numbers.reshape(json.loads(f"[{found['shape']}]")) if "shape" in found else numbers


def headings(app: AppTest) -> list[str]:
    """The titles of a page's parts and cards, without links."""
    texts = (each.value.replace("\\", "") for each in app.subheader)
    parts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text) for text in texts]
    return parts + [head["title"] for head in heads_of_cards(app)]


def named(link: str) -> str:
    """The head that a cell of a table names."""
    return parse_qs(urlsplit(link).query)["head"][0]


def walk(node: Any) -> Iterator[Any]:
    """All that is drawn on a page that was run, or in a part of it."""
    if isinstance(node, AppTest):
        node = node._tree
    for child in getattr(node, "children", {}).values():
        yield child
        yield from walk(child)


def other_value(widget: Any) -> list[str]:
    """Another value than a widget's, as the address has it; empty where it holds all it can."""
    value = widget.value
    if isinstance(value, bool):
        return [str(not value).lower()]
    if widget.type == "slider":
        ends = (widget.min, widget.max)
        if isinstance(value, tuple):
            return [str(each + widget.step) for each in value[:1]] + [str(value[1])]
        return [str(next(end for end in ends if end != value))]
    if widget.type == "number_input":
        more = widget.step if value < widget.max else -widget.step
        return [str(type(value)(value + more))]
    if widget.type in ("text_input", "text_area"):
        return [TYPED]
    shown = [getattr(each, "content", each) for each in widget.options]
    chosen = [*widget.value] if isinstance(value, list) else [str(value)]
    return [each for each in shown if each not in map(str, chosen)][-1:] or chosen[:1]
