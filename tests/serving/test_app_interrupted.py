"""A run of the script that is cut short: what a link chose is still told to the browser."""

from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner_utils.exceptions import RerunException
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.runtime.state import SafeSessionState
from streamlit.runtime.state.common import WidgetMetadata
from streamlit.testing.v1 import AppTest

from tests.support.bound import bound, opened, other_value

OF_ALL_PAGES = "methods"
"""The page on which the sidebar is tried: nothing there waits for a computation."""
PAGES = (OF_ALL_PAGES, "etc_heatmap", "helix", "interventions", "own_text")
"""Between them they have widgets of every kind."""
ELSEWHERE = {"model", "corpus", "revision"}
"""What would lead to files that are not here."""


def unaware(metadata: WidgetMetadata[Any]) -> WidgetStates:
    """What a browser sends that takes a widget's default for the reader's choice."""
    value = metadata.serializer(metadata.deserializer(None))
    sent = WidgetState(id=metadata.id)
    if metadata.value_type.endswith("_array_value"):
        getattr(sent, metadata.value_type).data.extend(value)
    elif value is not None:
        setattr(sent, metadata.value_type, value)
    return WidgetStates(widgets=[sent])


def cut_short(monkeypatch: pytest.MonkeyPatch, name: str, key: str, value: list[str]) -> AppTest:
    """A page opened by a link, whose first run ends behind the widget that the link is about."""
    whole, register = ScriptRunContext.enqueue, SafeSessionState.register_widget
    cuts, widgets = [], {}

    def remember(state: SafeSessionState, metadata: WidgetMetadata[Any], own: str | None) -> Any:
        widgets[own] = metadata
        return register(state, metadata, own)

    def enqueue(self: ScriptRunContext, message: ForwardMsg) -> None:
        whole(self, message)
        element = message.delta.new_element
        kind = element.WhichOneof("type") if message.HasField("delta") else None
        drawn = getattr(getattr(element, kind or "", None), "id", "")
        if drawn.endswith(f"-{key}") and not cuts:
            cuts.append(key)
            sent = unaware(widgets[key])
            raise RerunException(RerunData(self.query_string, sent, self.page_script_hash))

    with monkeypatch.context() as patched:
        patched.setattr(ScriptRunContext, "enqueue", enqueue)
        patched.setattr(SafeSessionState, "register_widget", remember)
        app = opened(name, **{key: value})
    assert [key] == cuts
    return app


@pytest.mark.slow
def test_what_a_link_chose_outlives_a_run_that_is_cut_short(shipped_only, monkeypatch):
    """Behind a widget of each kind: the run that follows is drawn with the value.

    A browser that has not seen the run before tells the widget's default: no choice.
    """
    lost, kinds = {}, set()
    for name in PAGES:
        app = opened(name)
        for key, widget in bound(app if name == OF_ALL_PAGES else app.main).items():
            value = [] if key in ELSEWHERE else other_value(widget)
            kind = widget.type, isinstance(widget.value, list | tuple)
            if value and value != [str(widget.value)] and kind not in kinds:
                kinds.add(kind)
                found = bound(cut_short(monkeypatch, name, key, value))[key]
                if found.value == widget.value:
                    lost[key] = value, found.value
    assert {} == lost
    assert len(kinds) > 7
