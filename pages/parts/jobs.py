"""A computation that is under way, on a page: progress, time left, cancel, try again."""

from __future__ import annotations

import streamlit as st

from pages.parts.plain import plain, say_error
from poskernel_core.engine import Engine
from poskernel_core.errors import Cancelled
from poskernel_core.job import Job

__all__ = ["follow"]

EVERY = 0.5


def follow(engine: Engine, job: Job) -> None:
    """Draw a job: its progress while it runs, or how it ended and a button to try again."""
    if job.ended and job.error is not None:
        _draw_end(engine, job)
    else:
        _watch(engine, job)


def _draw_end(engine: Engine, job: Job) -> None:
    if isinstance(job.error, Cancelled):
        st.info(
            "The computation was cancelled; started again, it goes on from its last checkpoint.",
            icon=":material/cancel:",
        )
    else:
        say_error(str(job.error))
    if st.button("Try again", key=f"again-{job.key}", icon=":material/refresh:"):
        engine.submit(job.request)
        st.rerun()


def _watch(engine: Engine, job: Job) -> None:
    st.fragment(_draw_progress, run_every=EVERY)(engine, job)


def _draw_progress(engine: Engine, job: Job) -> None:
    if job.ended:
        st.rerun(scope="app")
    with st.container(border=True):
        share = min(job.done / job.total, 1.0) if job.total else 0.0
        run = job.request.run
        st.markdown(f"**Computing {job.request.analysis} for {plain(run.model.name)}**")
        st.progress(share, text=_progress_text(job))
        st.caption(
            "You can change the selection meanwhile, or leave: the work goes on. Everybody who "
            "asks for the same shares it; cancelling stops it for all of them."
        )
        if st.button("Cancel", key=f"cancel-{job.key}", icon=":material/close:"):
            engine.cancel(job.request)


def _progress_text(job: Job) -> str:
    left = job.seconds_left()
    count = f": {job.done} of {job.total}" if job.total else ""
    return f"{job.note}{count}" + ("" if left is None else f", {_duration(left)} left")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
