"""The threads of a session: one after another where they meet.

A run of a page has a thread, and a reader who chooses meanwhile gets another one at once. Streamlit
keeps the two apart in neither of these places.

- What a run says is passed on by the server's event loop. Where a thread is over when a part of the
  page is to run (the clock of a computation asks for one every half second), another one starts at
  once, and what the loop of a busy server has not passed on yet is dropped: the end of the page,
  with what the reader has just chosen.
- What the browser says of its widgets is taken over by the thread. A clock's thread that is at it
  when the reader's begins takes the choice for known, or puts an earlier one back.
"""

from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.state import SafeSessionState

WAIT = 0.01
"""Seconds until the last run is looked at again."""


def keep_apart() -> None:
    """Let the threads of a session wait for each other; call it before there are sessions."""
    _run_after_the_last_word()
    _take_over_in_turn()


def _run_after_the_last_word() -> None:
    start = AppSession._create_scriptrunner
    whole: WeakKeyDictionary[AppSession, int] = WeakKeyDictionary()  # runs of all of a page

    def begin(session: AppSession, asked: RerunData) -> None:
        if not asked.fragment_id:
            whole[session] = whole.get(session, 0) + 1
        start_later(session, asked, whole.get(session, 0))

    def start_later(session: AppSession, asked: RerunData, known: int) -> None:
        if session._state == AppSessionState.SHUTDOWN_REQUESTED or known < whole.get(session, 0):
            return  # all of the page has begun since, with later words of the browser
        if (last := session._scriptrunner) is None:
            start(session, asked)
        elif not last.request_rerun(asked):
            session._event_loop.call_later(WAIT, start_later, session, asked, known)

    AppSession._create_scriptrunner = begin  # type: ignore[assignment, method-assign]


def _take_over_in_turn() -> None:
    take_over = SafeSessionState.on_script_will_rerun
    turns: dict[int, RLock] = {}  # by what the session keeps, at which each thread looks

    def in_turn(state: SafeSessionState, *given: Any, **named: Any) -> None:
        with turns.setdefault(id(state._state), RLock()):
            take_over(state, *given, **named)  # not if another thread was started meanwhile

    SafeSessionState.on_script_will_rerun = in_turn  # type: ignore[assignment, method-assign]
