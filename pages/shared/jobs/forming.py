"""Results that form while the model reads: one bar for all of a page, with how to stop or go on."""

from contextvars import ContextVar
from typing import Any, Final

import streamlit as st

from pages.shared.jobs.jobs import TICK_SECONDS, ask_again, duration
from pages.shared.selection.echo import is_behind
from pages.shared.selection.links import write
from pages.shared.selection.session import session_id
from poskernel_core.common.rounding import counted
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job

STOPPING: Final = "stopping-here"
STOPPED: Final = "stopped-before"

_SHOWN: ContextVar[dict[str, Job] | None] = ContextVar("forming", default=None)
"""The jobs whose results the page shows while they form, by key."""


def nothing_forms() -> None:
    """Begin a page."""
    _SHOWN.set({})


def forms(job: Job) -> None:
    """Note that the page shows what a job has so far."""
    shown = _SHOWN.get()
    if shown is not None:
        shown[job.key] = job


def draw_forming(engine: Engine, windows: int) -> None:
    """Draw the bar: how much was read, what is shown, and how to stop or to go on.

    Call it when the page has been drawn; ``windows`` is how many windows the page asks for.
    """
    jobs = list((_SHOWN.get() or {}).values())
    stopped = st.session_state.get(STOPPED) or []
    before = stopped[0].plan.run.windows if stopped else 0
    with st.container(key="forming", horizontal=True, vertical_alignment="center"):
        if not jobs:
            st.session_state[STOPPING] = False
            if windows < before:
                st.markdown(f"Stopped after {windows:,} of {counted(f'{before:,}', 'window')}.")
                _button("Go on", "play_arrow", _go_on, stopped)
            return
        if all(job.ended for job in jobs):
            st.markdown(_so_far(jobs))
            _button("Go on", "play_arrow", ask_again, *jobs)
            return
        st.fragment(_draw_progress, run_every=TICK_SECONDS)(engine, jobs, _state(jobs))
        _button("Stop here", "stop", _stop_here, engine, jobs)
        _button("Cancel", "close", _cancel, engine, jobs)


def _button(label: str, icon: str, act: Any, *given: Any) -> None:
    key = f"forming-{label.replace(' ', '-').lower()}"
    st.button(label, key=key, icon=f":material/{icon}:", on_click=act, args=given)


def _state(jobs: list[Job]) -> list[tuple[int, bool]]:
    return [(job.formed, job.ended) for job in jobs]


def _so_far(jobs: list[Job]) -> str:
    job = max(jobs, key=lambda each: each.formed)
    return f"**{job.formed:,} of {counted(f'{job.plan.run.windows:,}', 'window')}**"


def _draw_progress(engine: Engine, jobs: list[Job], drawn: list[tuple[int, bool]]) -> None:
    """Draw how far the pass is; draw the page again when there is more to see."""
    kept = max(job.kept for job in jobs)
    if kept and st.session_state.get(STOPPING):
        st.session_state[STOPPED] = jobs
        _cancel(engine, jobs)
        write("windows", kept)
        st.rerun(scope="app")
    if _state(jobs) != drawn and not is_behind():
        st.rerun(scope="app")
    reading = max(jobs, key=lambda job: job.done)
    left = reading.seconds_left()
    if st.session_state.get(STOPPING):
        rest = "stopping after the windows of this round"
    elif left is None:
        rest = f"{reading.done:,} read"
    else:
        rest = f"{reading.done:,} read, {duration(left)} left"
    share = min(reading.done / reading.total, 1.0) if reading.total else 0.0
    st.progress(share, text=f"{_so_far(jobs)} shown; {rest}")


def _stop_here(engine: Engine, jobs: list[Job]) -> None:
    st.session_state[STOPPING] = any(engine.keep(job.plan) for job in jobs)


def _cancel(engine: Engine, jobs: list[Job]) -> None:
    for job in jobs:
        engine.cancel(job.plan, session_id())


def _go_on(jobs: list[Job]) -> None:
    st.session_state[STOPPED] = None
    write("windows", jobs[0].plan.run.windows)
    ask_again(*jobs)
