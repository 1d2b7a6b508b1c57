"""Threads of a session: one after another where they meet."""

import asyncio
import threading

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.runtime.state.common import WidgetMetadata

from serving.sessions import keep_apart

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

    asyncio.run(ask())
    assert {"passed on": [PART], "all of the page": [WHOLE]}.get(ending, []) == session.started
    assert ([PART] if ending == "a part" else []) == other.taken


def test_a_choice_beside_a_thread_that_takes_over_what_was_before(monkeypatch, apart):
    """The thread of a clock has seen that it may go on; then the reader's takes over a choice."""
    apart()
    kept, chosen = SessionState(), []

    def call_back(state, **_):
        if state._widget_changed("model"):
            chosen.append(state["model"])

    monkeypatch.setattr(SessionState, "_call_callbacks", call_back)
    at_it, taken = threading.Event(), threading.Event()

    def words(value):
        return WidgetStates(widgets=[WidgetState(id="model", string_value=value)])

    def of_the_clock():
        at_it.set()
        taken.wait(1)

    def take(value, goes_on):
        SafeSessionState(kept, goes_on).on_script_will_rerun(words(value))

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
