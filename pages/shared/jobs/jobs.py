"""Computations in progress on a page: their progress, time left, and how to stop or go on.

A computation of which nothing can be shown yet is followed at its place on the page. Those whose
results form share one bar at the bottom of the page, so that nothing moves.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from pages.shared.cards.embed import in_place_of
from pages.shared.cards.plain import plain, say_error
from pages.shared.choices.choices import choose, waits
from pages.shared.run import current
from pages.shared.selection.session import session_id
from poskernel_core.common.errors import Cancelled
from poskernel_core.common.rounding import counted
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job
from poskernel_core.models.stored import title_of

TICK_SECONDS = 0.5
LEFT: Final = "cancelled-here"
"""The keys of the results that this reader has cancelled, though others may wait for them."""
AGAIN: Final = "asked-again"
STOPPING: Final = "stopping-here"
STOPPED: Final = "stopped-before"


def follow(engine: Engine, job: Job, then: Sequence[Job] = ()) -> None:
    """Draw a job of which nothing is shown yet: its progress, or how it ended.

    Its buttons act on the jobs of what the page shows ``then``, too.
    """
    waits()
    with in_place_of():
        if job.ended and not isinstance(job.error, Cancelled):
            say_error(str(job.error))
            if getattr(job.error, "passing", True):
                _again("Try again", [job, *then])
        else:
            with st.container(border=True):
                _draw(engine, [job], then, shown=False)


def draw_forming(engine: Engine, windows: int) -> None:
    """Draw the bar of the results that form; call it when the page has been drawn.

    ``windows`` is how many windows the page asks for: after "Stop here" they are fewer than before.
    """
    jobs, stopped = list(current().forming.values()), st.session_state.get(STOPPED) or []
    with st.container(key="forming", horizontal=True, vertical_alignment="center"):
        if jobs:
            _draw(engine, jobs, [], shown=True)
            return
        st.session_state[STOPPING] = False
        if stopped and windows < (before := stopped[0].plan.run.windows):
            st.markdown(f"Stopped after {windows:,} of {counted(f'{before:,}', 'window')}.")
            _button("Go on", "play_arrow", _to_all, stopped)


def _draw(engine: Engine, jobs: list[Job], then: Sequence[Job], *, shown: bool) -> None:
    """Draw the progress of jobs, again every half second, and their buttons, once.

    Streamlit identifies a fragment by its place on the page and drops clicks in a fragment that has
    moved, for instance because a result appeared above it. So the buttons are not in the fragment.
    """
    st.fragment(_draw_state, run_every=TICK_SECONDS)(engine, jobs, _state(jobs), shown)
    if all(job.ended for job in jobs):
        _again("Go on", [*jobs, *then])
    elif all(job.ended or has_left(job) for job in jobs):
        if not all(job.ended or job.cancelling for job in jobs):
            _again("Wait for it again", [*jobs, *then])
    else:
        if shown and all(job.plan.experiment is None for job in jobs):
            _button("Stop here", "stop", _stop_here, engine, jobs)
        _button("Cancel", "close", _leave, engine, [*jobs, *then])


State = list[tuple[int, bool, bool, bool]]


def _state(jobs: list[Job]) -> State:
    """Return what a page draws differently once it changes."""
    return [(job.formed, job.ended, job.cancelling, has_left(job)) for job in jobs]


def _draw_state(engine: Engine, jobs: list[Job], drawn: State, visible: bool) -> None:
    kept = max(job.kept for job in jobs)
    if kept and st.session_state.get(STOPPING):
        st.session_state[STOPPED] = jobs
        _leave(engine, jobs)
        choose("windows", kept)
        st.rerun(scope="app")
    if (refused := max(job.refused for job in jobs)) and st.session_state.get(STOPPING):
        st.session_state[STOPPING] = False
        st.toast(refused, icon=":material/inventory_2:")
    over = any(job.ended and not isinstance(job.error, Cancelled) for job in jobs)
    if over or _state(jobs) != drawn:
        st.rerun(scope="app")
    so_far = f"{_so_far(jobs)} shown. " if visible else ""
    if all(job.ended for job in jobs):
        message = "The computation was cancelled; it goes on from its last checkpoint."
        st.markdown(so_far + message)
    elif all(job.ended or job.cancelling for job in jobs):
        st.markdown(f"{so_far}Cancelling.")
    elif all(job.ended or has_left(job) for job in jobs):
        message = "You have cancelled this computation. It goes on for other readers."
        st.markdown(so_far + message)
    else:
        _draw_progress(max(jobs, key=lambda job: job.done), so_far, visible)


def _draw_progress(job: Job, so_far: str, visible: bool) -> None:
    left, share = job.seconds_left(), min(job.done / job.total, 1.0) if job.total else 0.0
    pace = "" if left is None else f", {_duration(left)} left"
    if not job.total:
        text = f"{job.note} ({_duration(time.monotonic() - job.began)})"
    elif st.session_state.get(STOPPING) and visible:
        text = "Stopping after the windows of this round"
    else:
        text = f"{job.note}: {job.done} of {job.total}{pace}"
    if not visible:
        subject, model = job.plan.question.noun_phrase, job.plan.run.model
        title = title_of(model.name, model.fingerprint)
        st.markdown(f"**Computing {subject} for {plain(title)}**")
    st.progress(share, text=so_far + text)
    if not visible:
        st.caption(
            "You can change the selection: the computation goes on. Readers who ask for the same "
            "result share it; it stops when all of them have cancelled."
        )


def _so_far(jobs: list[Job]) -> str:
    job = max(jobs, key=lambda candidate: candidate.formed)
    thing = "step" if job.plan.experiment else "window"
    return f"**{counted(f'{job.formed:,}', thing)}**"


def has_left(job: Job) -> bool:
    """Tell whether this reader has cancelled a computation that has not ended."""
    return not job.ended and job.plan.key in st.session_state.get(LEFT, ())


def forget_cancel(key: str) -> None:
    """Forget that this reader has cancelled a computation: a new one is asked for."""
    st.session_state[LEFT] = st.session_state.get(LEFT, set()) - {key}


def wants_again(job: Job) -> bool:
    """Tell, once, whether this reader has asked for a job again."""
    wanted = st.session_state.get(AGAIN, set())
    st.session_state[AGAIN] = wanted - {job.key}
    return job.key in wanted


def _button(label: str, icon: str, act: Any, *given: Any) -> None:
    key = f"{label.replace(' ', '-').lower()}-{given[-1][0].key}"
    st.button(label, key=key, icon=f":material/{icon}:", on_click=act, args=given)


def _again(label: str, jobs: list[Job]) -> None:
    """Draw the button that asks for jobs again."""
    _button(label, "refresh", _ask_again, jobs)


def _ask_again(jobs: list[Job]) -> None:
    for job in jobs:
        forget_cancel(job.plan.key)
    st.session_state[AGAIN] = st.session_state.get(AGAIN, set()) | {job.key for job in jobs}


def _leave(engine: Engine, jobs: list[Job]) -> None:
    for job in jobs:
        engine.cancel(job.plan, session_id())
    # Others may wait for the jobs, or restart them.
    st.session_state[LEFT] = st.session_state.get(LEFT, set()) | {job.plan.key for job in jobs}


def _stop_here(engine: Engine, jobs: list[Job]) -> None:
    st.session_state[STOPPING] = any(engine.keep(job.plan) for job in jobs)


def _to_all(jobs: list[Job]) -> None:
    st.session_state[STOPPED] = None
    choose("windows", jobs[0].plan.run.windows)
    _ask_again(jobs)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
