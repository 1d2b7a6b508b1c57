"""The threads of a session: one after another where they meet.

A run of a page has a thread, and a reader who chooses meanwhile gets another one at once. Streamlit
keeps the two apart in neither of these places.

- What a run says is passed on by the server's event loop. Where a thread is over when a part of the
  page is to run (the clock of a computation asks for one every half second), another one starts at
  once, and what the loop of a busy server has not passed on yet is dropped: the end of the page,
  with what the reader has just chosen.
- What the browser says of its widgets is taken over by the thread. A clock's thread that is at it
  when the reader's begins takes the choice for known, or puts an earlier one back.
- The browser says once that a button was pressed. A thread that is stopped by the next choice
  before it has taken that over, or before it has come to a part of the page, takes it along.
"""

from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.scriptrunner_utils.script_requests import (
    ScriptRequest,
    ScriptRequests,
    ScriptRequestType,
    _coalesce_widget_states,
)
from streamlit.runtime.state import SafeSessionState

WAIT = 0.01
"""Seconds until the last run is looked at again."""
HANDING = Lock()
"""Held while words of the browser pass from one thread to another, and never for long."""


def keep_apart() -> None:
    """Let the threads of a session wait for each other; call it before there are sessions."""
    deferred = _run_after_the_last_word()
    _take_over_in_turn()
    _hand_on_what_was_pressed(deferred)


def _run_after_the_last_word() -> WeakKeyDictionary[AppSession, list[RerunData]]:
    """Return what waits for the last word of a thread."""
    start = AppSession._create_scriptrunner
    whole: WeakKeyDictionary[AppSession, int] = WeakKeyDictionary()  # runs of all of a page
    deferred: WeakKeyDictionary[AppSession, list[RerunData]] = WeakKeyDictionary()

    def begin(session: AppSession, asked: RerunData) -> None:
        if not asked.fragment_id:
            whole[session] = whole.get(session, 0) + 1
        start_later(session, asked, whole.get(session, 0))

    def start_later(session: AppSession, asked: RerunData, known: int) -> None:
        deferred[session] = [other for other in deferred.get(session, []) if other is not asked]
        if session._state == AppSessionState.SHUTDOWN_REQUESTED or known < whole.get(session, 0):
            return  # all of the page has begun since, with later words of the browser
        if (last := session._scriptrunner) is None:
            start(session, asked)
        elif not last.request_rerun(asked):
            deferred[session].append(asked)
            session._event_loop.call_later(WAIT, start_later, session, asked, known)

    AppSession._create_scriptrunner = begin  # type: ignore[assignment, method-assign]
    return deferred


def _take_over_in_turn() -> None:
    turns: dict[int, RLock] = {}  # by what the session keeps, at which each thread looks

    def in_turn(state: SafeSessionState, fresh: WidgetStates | None, **named: Any) -> None:
        with turns.setdefault(id(state._state), RLock()):
            with HANDING:
                state._yield_callback()  # ends a thread in whose place another was started
                if runner := getattr(state._yield_callback, "__self__", None):
                    runner._requests.begun = None
            with state._lock:
                state._state.on_script_will_rerun(fresh, **named)

    SafeSessionState.on_script_will_rerun = in_turn  # type: ignore[assignment, method-assign]


def _hand_on_what_was_pressed(deferred: WeakKeyDictionary[AppSession, list[RerunData]]) -> None:
    take, ask = ScriptRequests.on_scriptrunner_ready, AppSession.request_rerun

    def begin(requests: ScriptRequests) -> ScriptRequest:
        with HANDING:
            request = take(requests)
            requests.begun = request._rerun_data  # type: ignore[attr-defined]
            return request

    def hand_on(session: AppSession, state: ClientState | None) -> None:
        with HANDING:
            if state and not state.fragment_id:
                for words in reversed([*deferred.get(session, []), *_untaken(session)]):
                    together = _coalesce_widget_states(words.widget_states, state.widget_states)
                    state.widget_states.CopyFrom(together)
            ask(session, state)

    ScriptRequests.on_scriptrunner_ready = begin  # type: ignore[assignment, method-assign]
    AppSession.request_rerun = hand_on  # type: ignore[assignment, method-assign]


def _untaken(session: AppSession) -> list[RerunData]:
    """Return what a thread has been told, oldest first, and has not taken over yet."""
    if session._scriptrunner is None:
        return []
    requests = session._scriptrunner._requests
    waits = requests._state == ScriptRequestType.RERUN
    told = (getattr(requests, "begun", None), requests._rerun_data if waits else None)
    return [words for words in told if words]
