"""The ends of every control of a page lie within the bounds of the parameter that it sets."""

from typing import Any

import pytest

from pages import NAMES
from poskernel_core.common import specs
from poskernel_core.common.errors import InvalidField
from tests.support.bound import bound, opened, other_value

pytestmark = pytest.mark.slow

MAX_CHOICES = 3
"""So many choices together are tried of those that may bring other controls."""


def ends(widget: Any) -> list[list[str]]:
    """The least and the largest number, or the longest text, of a control that has such ends."""
    if widget.type in ("text_input", "text_area"):
        return [["0" * widget.proto.max_chars]] * 2 if widget.proto.max_chars else []
    if isinstance(widget.value, tuple) or widget.type not in (
        "slider", "number_input", "select_slider",
    ):  # fmt: skip
        return []
    steps = widget.type == "select_slider"
    found = (widget.options[0], widget.options[-1]) if steps else (widget.min, widget.max)
    return [[str(each)] for each in found]


def choices(widget: Any) -> list[Any]:
    if widget.type == "button_group" and not isinstance(widget.value, list):
        return [getattr(each, "content", each) for each in widget.options]
    return [other_value(widget)] if widget.type in ("selectbox", "toggle", "checkbox") else []


@pytest.mark.parametrize("name", NAMES)
def test_every_control_ends_within_its_parameter(shipped_only, monkeypatch, name):
    """No link with the ends of a page's controls asks for a parameter that is refused."""
    refused = []

    class Refused(InvalidField):
        def __init__(self, sentence: str) -> None:
            super().__init__(sentence)
            refused.append(sentence)

    monkeypatch.setattr(specs, "InvalidField", Refused)
    ways: list[dict[str, Any]] = [{}]
    tried: set[str] = set()
    while ways:
        way = ways.pop()
        first = there = bound(opened(name, **way).main)
        for place in range(2):
            for _ in range(2):  # the ends of one control may follow another
                at = {key: found[place] for key, each in there.items() if (found := ends(each))}
                there = bound(opened(name, **way | at).main)
        for key in first.keys() - tried if len(way) < MAX_CHOICES else ():
            ways += [way | {key: value} for value in choices(first[key])]
        tried |= first.keys()
    assert [] == refused
