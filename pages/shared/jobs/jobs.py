"""A computation in progress on a page: its progress, time left, cancel, try again."""

import time

import streamlit as st

from pages.shared.cards.plain import plain, say_error
from pages.shared.selection.echo import is_behind
from pages.shared.selection.links import waits
from pages.shared.selection.session import session_id
from poskernel_core.common.errors import Cancelled
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import Plan

TICK_SECONDS = 0.5


def follow(engine: Engine, job: Job) -> None:
    """Draw a job: its progress while it runs, or how it ended and a button to try again."""
    waits()
    if job.ended and job.error is not None:
        _draw_end(job)
    elif has_left(job):
        st.fragment(_draw_going_on, run_every=TICK_SECONDS)(job)
        _draw_again("Wait for it again", "return", job)
    else:
        _watch(engine, job)


def has_left(job: Job) -> bool:
    """Tell whether this reader has cancelled a computation that goes on for others."""
    goes_on = not (job.ended or job.cancelling)
    return goes_on and st.session_state.get("left") == job.plan.key


def _leave(engine: Engine, job: Job) -> None:
    engine.cancel(job.plan, session_id())
    st.session_state["left"] = job.plan.key  # others may wait for the job, or restart it


def forget_cancel(asked: Plan) -> None:
    """Forget that this reader has cancelled a computation: a new one is asked for."""
    if st.session_state.get("left") == asked.key:
        st.session_state["left"] = None


def wants_again(job: Job) -> bool:
    """Tell, once, whether this reader has asked for a job again."""
    wanted = st.session_state.get("again", set())
    st.session_state["again"] = wanted - {job.key}
    return job.key in wanted


def ask_again(*jobs: Job) -> None:
    """Note that this reader asks for jobs again. A callback."""
    st.session_state["left"] = None
    st.session_state["again"] = {job.key for job in jobs}


def _draw_again(label: str, name: str, job: Job) -> None:
    """Draw the button that asks for a job again."""
    key, icon = f"{name}-{job.key}", ":material/refresh:"
    st.button(label, key=key, icon=icon, on_click=ask_again, args=(job,))


def _draw_going_on(job: Job) -> None:
    if job.ended and not is_behind():
        st.rerun(scope="app")
    st.info(
        "You have cancelled this computation. It goes on for other readers.",
        icon=":material/cancel:",
    )


def _draw_end(job: Job) -> None:
    if isinstance(job.error, Cancelled):
        st.info(
            "The computation was cancelled. If you start it again, it goes on from its last "
            "checkpoint.",
            icon=":material/cancel:",
        )
    else:
        say_error(str(job.error))
    _draw_again("Try again", "again", job)


def _watch(engine: Engine, job: Job) -> None:
    """Draw the progress, again every half second, and the button, once.

    Streamlit identifies a fragment by its place on the page and drops clicks in a fragment that has
    moved, for instance because a result appeared above it. So the button is not in a fragment.
    """
    with st.container(border=True):
        st.fragment(_draw_progress, run_every=TICK_SECONDS)(job, job.formed)
        st.button(
            "Cancel",
            key=f"cancel-{job.key}",
            icon=":material/close:",
            on_click=_leave,
            args=(engine, job),
        )


def _draw_progress(job: Job, formed: int) -> None:
    if (job.ended or has_left(job) or job.formed != formed) and not is_behind():
        st.rerun(scope="app")  # takes the browser's values; if these are old, half a second later
    share = min(job.done / job.total, 1.0) if job.total else 0.0
    subject, model = job.plan.question.noun_phrase, job.plan.run.model.name
    st.markdown(f"**Computing {subject} for {plain(model)}**")
    st.progress(share, text=_progress_text(job))
    st.caption(
        "You can change the selection: the computation goes on. Readers who ask for the same "
        "result share it; it stops when all of them have cancelled."
    )


def _progress_text(job: Job) -> str:
    if not job.total:
        return f"{job.note} ({duration(time.monotonic() - job.began)})"
    left = job.seconds_left()
    pace = "" if left is None else f", {duration(left)} left"
    return f"{job.note}: {job.done} of {job.total}{pace}"


def duration(seconds: float) -> str:
    """Return a number of seconds in words."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
