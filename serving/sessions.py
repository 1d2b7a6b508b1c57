"""A part of a page runs once all is passed on that the run before it has said.

A run has a thread, and what it says is passed on by the server's event loop. Where the thread is
over when a part is to run (the clock of a computation asks for one every half second), Streamlit
starts another thread at once, and drops what the loop of a busy server has not passed on yet: the
end of the page, with what the reader has just chosen.
"""

from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData

WAIT = 0.01
"""Seconds until the last run is looked at again."""


def run_after_the_last_word() -> None:
    """Let sessions wait for what a run has said before they start another thread."""
    start = AppSession._create_scriptrunner

    def start_later(session: AppSession, asked: RerunData) -> None:
        if (last := session._scriptrunner) is None:
            start(session, asked)
        elif not last.request_rerun(asked):
            session._event_loop.call_later(WAIT, start_unless_closed, session, asked)

    def start_unless_closed(session: AppSession, asked: RerunData) -> None:
        if session._state != AppSessionState.SHUTDOWN_REQUESTED:
            start_later(session, asked)

    AppSession._create_scriptrunner = start_later  # type: ignore[assignment, method-assign]
