"""Canonical requests: checked and resolved once, so that later stages need no checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from poskernel_core import analyses
from poskernel_core.analyses.base import Composition, Experiment, P, Params, Question
from poskernel_core.common.specs import Request, RunSpec
from poskernel_core.data import corpora


@dataclass(frozen=True)
class CanonicalRequest:
    """A request with all defaults filled in, so that equal requests have the same key.

    Attributes:
        question: the analysis or experiment that answers it.
        params: its checked parameters.
        wire: the serialisable form that is hashed, sent and shipped: every parameter by name, and
            only those fields of the run that affect the answer, with every fingerprint.
    """

    question: Question[Any]
    params: Params
    wire: Request

    @property
    def run(self) -> RunSpec:
        """The canonical run."""
        return self.wire.run

    @cached_property
    def key(self) -> str:
        """The store key of the result, a content address."""
        return self.wire.key

    @cached_property
    def needs(self) -> Mapping[str, RunSpec]:
        """The runs whose statistics the answer needs, by role, with every fingerprint.

        Computed lazily: drawing a stored result needs none of them.

        Raises:
            BadRequest: the parameters do not fit the run.
        """
        runs = self.question.needs(self.run, self.params)
        return {role: _resolved(run) for role, run in runs.items()}

    @property
    def composition(self) -> Composition[Any] | None:
        """The question if it is a composition of other results, else None."""
        return self.question if isinstance(self.question, Composition) else None

    def parts(self) -> dict[str, CanonicalRequest]:
        """Return the part requests of a composition by name; empty for other questions.

        Not cached: the commit of a hub revision may become known between calls.

        Raises:
            BadRequest: the parameters do not fit the run.
        """
        if self.composition is None:
            return {}
        parts = self.composition.parts(self.run, self.params)
        return {
            name: canonical_of(part.question, part.run, part.params) for name, part in parts.items()
        }

    @property
    def experiment(self) -> Experiment[Any] | None:
        """The question if it is an experiment, else None."""
        return self.question if isinstance(self.question, Experiment) else None


Asked = Request | CanonicalRequest
"""A request to the engine, already canonical or not yet."""


def canonical(request: Asked) -> CanonicalRequest:
    """Return a request in canonical form; a canonical request is returned unchanged.

    Raises:
        UnknownAnalysis: no such analysis.
        InvalidField: an unknown parameter, a wrong value, or not a request at all.
    """
    if isinstance(request, CanonicalRequest):
        return request
    request = Request.model_validate(request)
    question = analyses.find(request.analysis)
    return canonical_of(question, request.run, check_params(question, request.params))


def canonical_of(question: Question[P], run: RunSpec, params: P) -> CanonicalRequest:
    """Return a question's canonical request, with only the run's fields that affect the answer.

    Raises:
        BadRequest: the parameters do not fit the run.
    """
    fitting = _resolved(question.canonical(run, params))
    wire = Request(analysis=question.name, run=fitting, params=params.model_dump())
    return CanonicalRequest(question, params, wire)


def received(wire: Request) -> CanonicalRequest:
    """Check a request that another process sent in canonical form; its key stays the same.

    Raises:
        UnknownAnalysis: no such analysis.
        BadRequest: an unknown parameter or a wrong value.
    """
    question = analyses.find(wire.analysis)
    return CanonicalRequest(question, check_params(question, wire.params), wire)


def check_params(question: Question[P], params: Mapping[str, Any]) -> P:
    """Return the checked parameters of a question.

    Raises:
        InvalidField: an unknown parameter or a wrong value.
    """
    return question.params.model_validate(params, context={"of": question.name})


def _resolved(run: RunSpec) -> RunSpec:
    if run.corpus.fingerprint:
        return run
    return run.model_copy(update={"corpus": corpora.resolve(run.corpus)})
