"""Plans: what a request comes to, resolved once and sent as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from poskernel_core import analyses
from poskernel_core.analyses.base import Composition, Experiment, P, Params, Question, TokenParams
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import (
    DEFAULT_TOKEN,
    Gather,
    Request,
    RunSpec,
    digest,
    model_prefix,
)
from poskernel_core.data import corpora
from poskernel_core.engine.provenance import stored
from poskernel_core.models.tokenizers import usual_word
from poskernel_core.storage.statistics import in_passes, missing_statistics
from poskernel_core.storage.store import Store


@dataclass(frozen=True)
class Plan:
    """A request with all that follows from it; equal requests have the same key.

    Attributes:
        question: what is asked.
        run: only those fields of the run that affect the answer, with every fingerprint.
        params: the checked parameters.
        key: the store key of the result, a content address.
        missing: the passes that must run first, each with the statistics to gather; None: not
            looked up (:meth:`looked_up`).
    """

    question: Question[Any] = field(repr=False)
    run: RunSpec
    params: Params
    key: str
    missing: tuple[RunSpec, ...] | None = None

    @property
    def experiment(self) -> Experiment[Any] | None:
        """The question if it is an experiment, else None."""
        return self.question if isinstance(self.question, Experiment) else None

    @property
    def composition(self) -> Composition[Any] | None:
        """The question if it is a composition of other results, else None."""
        return self.question if isinstance(self.question, Composition) else None

    @cached_property
    def parts(self) -> Mapping[str, Plan]:
        """The plans of a composition's parts by name; empty for other questions."""
        if self.composition is None:
            return {}
        parts = self.composition.parts(self.run, self.params)
        for request in parts.values():
            if isinstance(request.question, Composition):
                raise BadRequest(
                    f"{self.question.name!r} combines {request.question.name!r}, which combines "
                    "answers itself: expected analyses or experiments as its parts."
                )
        return {n: plan_of(part.question, part.run, part.params) for n, part in parts.items()}

    @property
    def keys(self) -> tuple[str, ...]:
        """The store keys of the results that the answer is read from."""
        return tuple(part.key for part in self.parts.values()) or (self.key,)

    @property
    def settled(self) -> bool:
        """Whether all weights are known; a hub revision's commit may be known only later."""
        return all(part.run.model.fingerprint for part in self.parts.values() or [self])

    def of_stage(self, windows: int, query: int) -> Plan:
        """Return the plan of the same question about the first windows, or steps of an experiment.

        If the answer is only a part of the whole one, it has a key of its own.
        """
        if self.experiment is not None:
            prefix = model_prefix(self.run.model.fingerprint)
            return replace(self, key=f"{prefix}{digest([self.key, 'steps', windows])}")
        fewer = {"windows": windows, "until": None}
        plan = plan_of(self.question, self.run.model_copy(update=fewer), self.params)
        if not any("query" in v.axes or v.over_positions for v in self.question.values):
            return plan
        prefix = model_prefix(plan.run.model.fingerprint)
        return replace(plan, key=f"{prefix}{digest([plan.key, query])}")

    def again(self) -> Plan:
        """Return the plan as resolved now; the same if all weights were known."""
        return self if self.settled else plan_of(self.question, self.run, self.params)

    @property
    def request(self) -> Request:
        """The request in canonical form, as it is hashed and shipped."""
        return Request(analysis=self.question.name, run=self.run, params=self.params.model_dump())

    @property
    def line(self) -> str:
        """The line that asks for it where the model is an object."""
        run, usual = self.run, RunSpec.model_fields
        given = {"windows": run.windows, "context": run.context, "corpus": run.corpus.name}
        for name in ("start_token", "dtype", "seed"):
            if getattr(run, name) != usual[name].default:
                given[name] = getattr(run, name)
        params = self.params.model_dump(exclude_defaults=True)
        given |= {"params": params} if params else {}
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"lab.show({self.question.name!r}, {arguments})"

    @property
    def needs(self) -> dict[str, RunSpec]:
        """The runs whose statistics the answer needs, by role, with every fingerprint."""
        runs = self.question.needs(self.run, self.params)
        return {role: _with_text(run) for role, run in runs.items()}

    def looked_up(self, store: Store) -> Plan:
        """Return the plan with the passes whose statistics the store lacks."""
        return replace(self, missing=tuple(missing_passes(store, self.needs.values())))

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, for another process."""
        missing = [run.model_dump(mode="json") for run in self.missing or ()]
        return self.request.model_dump(mode="json") | {"missing": missing}

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Plan:
        """Read what :meth:`as_json` of another process returned; the key is the same."""
        fields = dict(message)
        missing = tuple(map(RunSpec.model_validate, fields.pop("missing", ())))
        request = Request.model_validate(fields)
        question = analyses.find(request.analysis)
        params = check_params(question, request.params)
        return cls(question, request.run, params, request.key, missing)


Asked = Request | Plan
"""A request to the engine, resolved already or not yet."""


def make_plan(request: Asked) -> Plan:
    """Return the plan of a request; a plan is returned unchanged."""
    if isinstance(request, Plan):
        return request
    request = Request.model_validate(request)
    question = analyses.find(request.analysis)
    return plan_of(question, request.run, check_params(question, request.params))


def plan_of(question: Question[P], run: RunSpec, params: P) -> Plan:
    """Return the plan of a question about a run."""
    used = getattr(params, "source", "token") == "token"
    if used and isinstance(params, TokenParams) and params.token == DEFAULT_TOKEN:
        params = params.model_copy(update={"token": usual_word(run.model)})
    params = question.completed(run, params)
    fitting = _with_text(question.canonical(run, params))
    request = Request(analysis=question.name, run=fitting, params=params.model_dump())
    return Plan(question, fitting, params, request.key)


def to_compute(store: Store, plan: Plan) -> list[Plan]:
    """Return what must be computed for a plan, looked up: itself, or its parts that are missing."""
    parts = [part for part in plan.parts.values() if stored(store, part.key) is None]
    return [part.looked_up(store) for part in (parts if plan.parts else [plan])]


def missing_passes(store: Store | None, runs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return the passes to run, each with the statistics of ``runs`` that the store lacks."""
    passes: dict[RunSpec, set[Gather]] = {}
    for run, windows in in_passes(runs):
        wanted = run.gather if store is None else missing_statistics(store, run)
        passes.setdefault(windows, set()).update(wanted)
    return [gathering(run, missing) for run, missing in passes.items() if missing]


def gathering(run: RunSpec, statistics: Iterable[Gather]) -> RunSpec:
    """Return the run with these statistics to gather."""
    return run.model_copy(update={"gather": tuple(sorted(statistics))})


def check_params(question: Question[P], params: Mapping[str, Any]) -> P:
    """Return the checked parameters of a question."""
    return question.params.model_validate(params, context={"of": question.name})


def _with_text(run: RunSpec) -> RunSpec:
    if run.corpus.fingerprint:
        return run
    return run.model_copy(update={"corpus": corpora.resolve(run.corpus)})
