"""Threads of a session: another one begins once all is passed on that the last one said."""

import asyncio
from types import SimpleNamespace

import pytest
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData

from serving.sessions import run_after_the_last_word

PART = RerunData(fragment_id="part")


class Runner:
    """A thread that takes what is asked, or is over."""

    def __init__(self, over):
        self.over, self.taken = over, []

    def request_rerun(self, asked):
        if not self.over:
            self.taken.append(asked)
        return not self.over


@pytest.fixture
def session(monkeypatch):
    """A session that notes which threads it starts, and what it asks for."""
    state = AppSessionState.APP_NOT_RUNNING
    started = SimpleNamespace(_scriptrunner=None, _state=state, started=[], ask=None)
    monkeypatch.setattr(
        AppSession, "_create_scriptrunner", lambda one, asked: one.started.append(asked)
    )
    run_after_the_last_word()
    started.ask = lambda asked: AppSession._create_scriptrunner(started, asked)
    return started


def test_the_first_thread(session):
    session.ask(PART)
    assert [PART] == session.started


@pytest.mark.parametrize("ending", ["passed on", "another run", "closed"])
def test_a_thread_that_is_over(session, ending):
    """Nothing starts before its last word is passed on; a closed session starts nothing."""
    other = Runner(over=False)

    async def ask():
        session._event_loop, session._scriptrunner = asyncio.get_running_loop(), Runner(over=True)
        session.ask(PART)
        await asyncio.sleep(0.05)
        assert not session.started
        session._scriptrunner = other if ending == "another run" else None
        if ending == "closed":
            session._state = AppSessionState.SHUTDOWN_REQUESTED
        await asyncio.sleep(0.05)

    asyncio.run(ask())
    assert ([PART] if ending == "passed on" else []) == session.started
    assert ([PART] if ending == "another run" else []) == other.taken
