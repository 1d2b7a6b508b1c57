"""What pages ask of the engine; the only module that uses Streamlit's caches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final, NoReturn

import streamlit as st
from cachetools import TTLCache, cached

from pages.shared.cards.plain import say, say_once
from pages.shared.choices.choices import chosen
from pages.shared.jobs.jobs import follow, forget_cancel, has_left, wants_again
from pages.shared.run import current
from pages.shared.selection.host import any_model
from pages.shared.selection.session import person, present, session_id
from poskernel_core.analyses import find
from poskernel_core.analyses.base import P, Question
from poskernel_core.common.errors import (
    BadRequest,
    Cancelled,
    ComputeDisabled,
    NotInModel,
    PosKernelError,
)
from poskernel_core.common.result import Result
from poskernel_core.common.specs import RunSpec
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.inventory import stored_params
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import Asked, Plan, make_plan, plan_of
from poskernel_core.engine.process import start_in_lab
from poskernel_core.models import catalog
from poskernel_core.models import training as runs
from poskernel_core.models.attached import attached
from poskernel_core.models.catalog import Located
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.training import TrainingRun, training_run

PATIENCE = 0.8
"""Seconds for which a page waits for a quick result before it draws the progress."""

WAITED: Final = "waited-for"
"""The jobs that this session has waited for once."""

FRESH = 300
"""Seconds for which files of models and texts are taken to be unchanged."""

_PLANS: TTLCache[tuple[Any, ...], Plan] = TTLCache(4096, FRESH)
_PLANNING = Lock()


@st.cache_resource(show_spinner=False)
def engine() -> Engine:
    """Return the one engine of this server."""
    return Engine(present=present, person=person, start=start_in_lab())


def say_notice() -> None:
    """Show a reader the store's notice once."""
    try:
        notice = engine().store.notice
    except PosKernelError:  # the error is shown where the page asks for a result
        return
    if notice and st.session_state.get("notice") != notice:
        st.session_state["notice"] = notice
        st.toast(notice, icon=":material/inventory_2:")


@st.cache_data(ttl=FRESH, show_spinner=False)
def _located(name: str, revision: str | None) -> Located:
    return catalog.locate(name, revision)


def located(name: str, revision: str | None) -> Located:
    """Return a model's files and sizes, cached for five minutes, with its positions as seen now."""
    locate = catalog.locate if attached(name) else _located
    return catalog.as_probed(locate(name, revision))


@st.cache_data(ttl=FRESH, show_spinner=False)
def _training(name: str) -> TrainingRun | None:
    return training_run(name)


def training(name: str) -> TrainingRun | None:
    """Return the checkpoints of a model, cached for five minutes; a logged run grows meanwhile."""
    return training_run(name) if attached(name) else _training(name)


def check_revision(name: str, revision: str | None) -> None:
    """Check that a revision of a hub model is on offer: its current one, or a listed checkpoint.

    Raises:
        BadRequest: another one, and the host does not allow clients to name what is downloaded.
    """
    if not any_model():
        runs.check_revision(name, revision, training)


def has_checkpoints(name: str) -> bool:
    """Tell whether a model has checkpoints of its training, or cannot be read and may have them."""
    try:
        return training(name) is not None
    except BadRequest:
        return True


def plan(question: type[Question[P]] | Question[P], run: RunSpec, params: P) -> Plan:
    """Return the plan of a question, kept for five minutes once all weights are known.

    Raises:
        PosKernelError: the request does not fit.
    """
    key = question.name, run, params
    with _PLANNING:
        known = _PLANS.get(key)
    if known is None:
        known = plan_of(find(question.name), run, params)
        if known.settled:
            with _PLANNING:
                _PLANS[key] = known
    return known


def missing(question: type[Question[P]], run: RunSpec, params: P) -> list[str]:
    """Return the names of the parts of a result that are not stored yet.

    Raises:
        PosKernelError: the request does not fit.
    """
    return engine().missing(plan(question, run, params))


def stored(planned: Plan) -> Result | None:
    """Return a result if it is stored."""
    return engine().cached(planned)


@cached(
    TTLCache(64, FRESH),
    key=lambda question, run: (engine().store, question.name, run.key()),
    lock=Lock(),
)
def all_stored(question: type[Question[P]], run: RunSpec) -> list[P]:
    """Return the parameters of all answers to a question that are stored of a run."""
    answers = []
    for given in stored_params(engine().store, run.model.fingerprint, question.name):
        with suppress(PosKernelError, ValueError):  # of another version
            params = question.params(**given)
            if engine().ready(plan(question, run, params)):
                answers.append(params)
    return answers


def known(name: str, run: RunSpec, geometry: Geometry) -> Result | None:
    """Return the answer to a question as the model's defaults ask it, if it is stored."""
    question = find(name)
    with suppress(PosKernelError):
        params = question.params(**question.default_params(run, geometry))
        return stored(plan(question, run, params))
    return None


def fetch(
    question: type[Question[P]],
    run: RunSpec,
    params: P,
    *then: tuple[type[Question[Any]], Any],
) -> Result | None:
    """Return a result, or what there is of it while it forms.

    Until there is something, draw the progress or an error and return None. ``then`` are questions,
    with parameters, that the page asks next: they are computed together with this one.
    """
    result = None
    with refusals_shown(question):
        query = _looked_at(params)
        answer = ask(plan(question, run, params), query)
        result = answer if isinstance(answer, Result) else _formed(answer, query)
        if isinstance(answer, Job):
            under_way = not (answer.ended or has_left(answer))
            others = _jobs_of(run, then, begin=under_way)
            failed = answer.error is not None and not isinstance(answer.error, Cancelled)
            if result is None or failed:
                follow(engine(), answer, others)
            else:
                current().forming[answer.key] = answer
    return result


def _jobs_of(run: RunSpec, asked: Sequence[tuple[Any, Any]], *, begin: bool) -> list[Job]:
    """Return the jobs of results that are not stored; ``begin`` those that have none."""
    jobs = []
    for question, params in asked:
        with suppress(PosKernelError):  # said where the result is drawn
            planned = plan(question, run, params)
            if stored(planned) is None:
                looks_at = _looked_at(params)
                job = _job(planned, looks_at) if begin else engine().running(planned)
                jobs += [] if job is None else [job]
    return jobs


def newest(planned: Plan, query: int) -> Result | None:
    """Return a result if it is stored, else what a running job has of it at a query position."""
    result, job = stored(planned), engine().running(planned)
    return result if result is not None or job is None else _formed(job, query)


def _looked_at(params: Any) -> int | None:
    """Return the query position that the reader looks at, once it has been chosen."""
    query: int | None = getattr(params, "query", chosen("query"))
    return query


def _formed(job: Job, query: int | None) -> Result | None:
    """Return what a job has so far at a query position."""
    if not job.formed or (query is None and job.plan.experiment is None):
        return None
    return stored(job.plan.of_stage(job.formed, query or 0))


@contextmanager
def refusals_shown(question: type[Question[Any]]) -> Iterator[None]:
    """Show in place of a figure why its request was refused."""
    try:
        yield
    except ComputeDisabled as error:
        say(f"Not computed: {question.noun_phrase}. {error}")
    except NotInModel as error:
        say(str(error))
    except PosKernelError as error:
        say_once(str(error))


def ask(request: Asked, looks_at: int | None = None) -> Result | Job:
    """Return a result, or its job, which is running or has failed.

    ``looks_at`` is the query position at which the reader looks at the result while it forms.

    Raises:
        PosKernelError: the request does not fit.
    """
    planned = make_plan(request)
    result = stored(planned)
    if result is not None:
        return result
    job = _job(planned, looks_at)
    waited = st.session_state.setdefault(WAITED, set())
    patience = 0 if job.key in waited else PATIENCE
    waited.add(job.key)
    if not has_left(job) and job.wait(patience) and job.error is None:
        return stored(planned) or job
    return job


def _job(planned: Plan, looks_at: int | None) -> Job:
    """Return the job of a result: a new one unless it runs, has failed, or was cancelled here."""
    job = engine().running(planned)
    if job is None or job.state == "done":
        forget_cancel(planned.key)
    under_way = job is not None and not (job.ended or has_left(job))
    if job is None or job.state == "done" or wants_again(job) or under_way:
        job = engine().submit(planned, session_id(), looks_at)
    return job


def stop(sentence: str) -> NoReturn:
    """End the run of the script; the page shows only this sentence."""
    raise PageStopped(sentence)


class PageStopped(Exception):
    """The selection is not available; ``app.py`` shows the sentence in place of the page."""
