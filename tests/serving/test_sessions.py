"""Threads of a session: one after another where they meet."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.scriptrunner_utils.exceptions import StopException
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.runtime.state.common import WidgetMetadata

from serving.sessions import keep_apart
from tests.support.server import run_alone

PART, WHOLE = RerunData(fragment_id="part"), RerunData()


class Session:
    """Notes which threads it starts."""

    def __init__(self):
        self._scriptrunner, self._state, self.started = None, AppSessionState.APP_NOT_RUNNING, []

    def ask(self, asked):
        AppSession._create_scriptrunner(self, asked)


class Runner:
    """A thread that takes what is asked, or is over."""

    def __init__(self, over):
        self.over, self.taken = over, []

    def request_rerun(self, asked):
        if not self.over:
            self.taken.append(asked)
        return not self.over


@pytest.fixture
def apart(monkeypatch):
    """Threads are kept apart, until the test is over."""
    for kind, name in (
        (AppSession, "_create_scriptrunner"),
        (AppSession, "request_rerun"),
        (ScriptRequests, "on_scriptrunner_ready"),
        (SafeSessionState, "on_script_will_rerun"),
    ):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    return keep_apart


@pytest.fixture
def session(monkeypatch, apart):
    """A session whose threads are kept apart."""
    monkeypatch.setattr(
        AppSession, "_create_scriptrunner", lambda one, asked: one.started.append(asked)
    )
    apart()
    return Session()


def test_the_first_thread(session):
    session.ask(PART)
    assert [PART] == session.started


@pytest.mark.parametrize("ending", ["passed on", "a part", "all of the page", "closed"])
def test_a_thread_that_is_over(session, ending):
    """Nothing starts before its last word is passed on; later words of the browser come first."""
    other = Runner(over=False)

    async def ask():
        session._event_loop, session._scriptrunner = asyncio.get_running_loop(), Runner(over=True)
        session.ask(PART)
        await asyncio.sleep(0.05)
        assert not session.started
        session._scriptrunner = None
        if ending == "all of the page":
            session.ask(WHOLE)
        if ending in ("a part", "all of the page"):
            session._scriptrunner = other
        if ending == "closed":
            session._state = AppSessionState.SHUTDOWN_REQUESTED
        await asyncio.sleep(0.05)

    run_alone(ask())
    assert {"passed on": [PART], "all of the page": [WHOLE]}.get(ending, []) == session.started
    assert ([PART] if ending == "a part" else []) == other.taken


def words(*pressed, **chosen):
    """What the browser says of its widgets."""
    buttons = [WidgetState(id=name, trigger_value=True) for name in pressed]
    others = [WidgetState(id=name, string_value=value) for name, value in chosen.items()]
    return WidgetStates(widgets=[*buttons, *others])


def pressed_and(state):
    """The buttons that were pressed, and what is chosen."""
    return {each.id: each.string_value or each.trigger_value for each in state.widgets}


class Thread:
    """Takes over what it is told, one step after another."""

    def __init__(self, kept, told):
        self._requests, self.ended = ScriptRequests(), False
        self._state = SafeSessionState(kept, self.go_on)
        self._requests.request_rerun(told)

    def go_on(self):
        if self.ended:
            raise StopException

    def begin(self):
        return self._requests.on_scriptrunner_ready()

    def take_over(self):
        self._state.on_script_will_rerun(self.begin().rerun_data.widget_states)

    def request_stop(self):
        self.ended = True


@pytest.mark.parametrize("come_to", ["told", "begun", "taken over", "told of a part", "deferred"])
def test_what_was_pressed_before_a_choice(monkeypatch, apart, come_to):
    """A thread that is stopped before it has taken over a press hands it on, once."""
    heard = []
    monkeypatch.setattr(AppSession, "request_rerun", lambda one, state: heard.append(state))
    apart()
    session, first = Session(), RerunData(widget_states=words("pin", model="first"))
    last = session._scriptrunner = Thread(SessionState(), first)
    if come_to == "begun":
        last.begin()
    elif come_to != "told":
        last.take_over()
    part = RerunData(widget_states=words("stop", model="first"), fragment_id="part")
    if come_to == "told of a part":
        last._requests.request_rerun(part)
    elif come_to == "deferred":
        last._requests.request_stop()
        session._event_loop, last.request_rerun = SimpleNamespace(call_later=print), lambda _: False
        session.ask(part)
    AppSession.request_rerun(session, ClientState(widget_states=words(model="other")))
    pressed = {"taken over": {}, "told of a part": {"stop": True}, "deferred": {"stop": True}}
    assert pressed.get(come_to, {"pin": True}) | {"model": "other"} == pressed_and(
        heard[0].widget_states
    )


def test_a_thread_that_was_stopped_takes_nothing_over(apart):
    apart()
    kept = SessionState()
    last = Thread(kept, RerunData(widget_states=words("pin")))
    last.request_stop()
    with pytest.raises(StopException):
        last.take_over()
    assert [words("pin")] == [last._requests.begun.widget_states]
    assert not kept._new_widget_state.states


def test_a_choice_beside_a_thread_that_takes_over_what_was_before(monkeypatch, apart):
    """The thread of a clock has seen that it may go on; then the reader's takes over a choice."""
    apart()
    kept, chosen = SessionState(), []

    def call_back(state, **_):
        if state._widget_changed("model"):
            chosen.append(state["model"])

    monkeypatch.setattr(SessionState, "_call_callbacks", call_back)
    at_it, taken = threading.Event(), threading.Event()

    def of_the_clock():
        at_it.set()
        taken.wait(1)

    def take(value, goes_on):
        SafeSessionState(kept, goes_on).on_script_will_rerun(words(model=value))

    kept.register_widget(
        WidgetMetadata(
            "model",
            deserializer=lambda value: value,
            serializer=lambda value: value,
            value_type="string_value",
        ),
        None,
    )
    take("first", lambda: None)
    clock = threading.Thread(target=take, args=("first", of_the_clock))
    clock.start()
    at_it.wait()
    take("other", lambda: None)
    taken.set()
    clock.join()
    assert ("other", "other") == (kept["model"], chosen[-1])
