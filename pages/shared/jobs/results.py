"""The way from a page to the engine; the only place that uses Streamlit's caches."""

from typing import NoReturn

import streamlit as st

from pages.shared.cards.plain import plain, say_once
from pages.shared.jobs.jobs import follow, forget_cancel, has_left, wants_again
from pages.shared.selection.visitor import person, present, visitor
from poskernel_core.analyses import find
from poskernel_core.analyses.base import P, Question
from poskernel_core.common.errors import BadRequest, ComputeDisabled, NotInModel, PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.common.specs import RunSpec
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job
from poskernel_core.engine.requests import Asked, canonical, canonical_of
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located
from poskernel_core.models.training import TrainingRun, training_run

PATIENCE = 0.8
"""Seconds that a page waits for a quick result before it draws progress instead."""


@st.cache_resource(show_spinner=False)
def engine() -> Engine:
    """Return the one engine of this server."""
    return Engine(present=present, person=person)


def say_notice() -> None:
    """Show a reader the store's notice once."""
    try:
        notice = engine().store.notice
    except PosKernelError:  # the page says it where it asks for a result
        return
    if notice and st.session_state.get("notice") != notice:
        st.session_state["notice"] = notice
        st.toast(notice, icon=":material/inventory_2:")


@st.cache_data(ttl=300, show_spinner=False)
def located(name: str, revision: str | None) -> Located:
    """Return a model's files and sizes; asked again every five minutes."""
    return catalog.locate(name, revision)


@st.cache_data(ttl=300, show_spinner=False)
def training(name: str) -> TrainingRun | None:
    """Return the checkpoints of a model; asked again every five minutes."""
    return training_run(name)


def has_checkpoints(name: str) -> bool:
    """Tell whether a model comes with checkpoints of its training; one that cannot be asked may."""
    try:
        return training(name) is not None
    except BadRequest:
        return True


def missing(question: type[Question[P]], run: RunSpec, params: P) -> list[str]:
    """Return the names of the parts of an answer that are not there yet.

    Raises:
        PosKernelError: the request does not fit.
    """
    return engine().missing(canonical_of(find(question.name), run, params))


def is_ready(request: Asked) -> bool:
    """Tell whether a result is there, or follows from what is, without running the model.

    Raises:
        PosKernelError: the request does not fit.
    """
    return engine().ready(request)


def fetch(question: type[Question[P]], run: RunSpec, params: P) -> Result | None:
    """Return a result; where it takes a while, draw its progress and return None."""
    try:
        found = ask(canonical_of(find(question.name), run, params))
    except ComputeDisabled as error:  # each figure of a page says which it is
        st.info(plain(f"Not computed: {question.noun_phrase}. {error}"), icon=":material/info:")
        return None
    except NotInModel as error:
        st.info(plain(str(error)), icon=":material/info:")
        return None
    except PosKernelError as error:
        say_once(str(error))
        return None
    if isinstance(found, Job):
        follow(engine(), found)
        return None
    return found


def ask(request: Asked) -> Result | Job:
    """Return a result, or else its job, which is running or has failed.

    Raises:
        PosKernelError: the request does not fit.
    """
    asked = canonical(request)
    found = engine().cached(asked)
    if found is not None:
        return found
    job = engine().running(asked)
    if job is None or job.state == "done":
        forget_cancel(asked)
    under_way = job is not None and not (job.ended or has_left(job))
    if job is None or job.state == "done" or wants_again(job) or under_way:
        job = engine().submit(asked, visitor())
    if not has_left(job) and job.wait(PATIENCE) and job.error is None:
        return engine().cached(asked) or job
    return job


def stop(sentence: str) -> NoReturn:
    """Say why nothing can be shown, in the page's body, and end the run of the script."""
    raise PageStopped(sentence)


class PageStopped(Exception):
    """The selection cannot be met; ``app.py`` shows the sentence in place of the page."""
