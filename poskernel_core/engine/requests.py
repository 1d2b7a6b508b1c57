"""Resolves a request once; later stages trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from poskernel_core import analyses
from poskernel_core.analyses.base import Composition, Experiment, P, Params, Question
from poskernel_core.common.specs import Request, RunSpec
from poskernel_core.data import corpora

__all__ = [
    "Asked",
    "CanonicalRequest",
    "canonical",
    "canonical_of",
    "check_params",
    "received",
]


@dataclass(frozen=True)
class CanonicalRequest:
    """A request with everything spelt out, so that equal requests have one key.

    Attributes:
        question: the analysis or experiment that answers it.
        params: its parameters, checked.
        wire: the same as it is hashed, sent and shipped: every parameter by name, and the run as
            far as the answer depends on it, with every fingerprint.
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
        """The content address of the result."""
        return self.wire.key

    @cached_property
    def needs(self) -> Mapping[str, RunSpec]:
        """The runs that the answer stands on, by role, with every fingerprint.

        Found when first asked for: who draws a stored result needs none of them.

        Raises:
            BadRequest: the parameters do not fit the run.
        """
        runs = self.question.needs(self.run, self.params)
        return {role: _resolved(run) for role, run in runs.items()}

    @property
    def composition(self) -> Composition[Any] | None:
        """The question if its answer is put together from others, else None."""
        return self.question if isinstance(self.question, Composition) else None

    def parts(self) -> dict[str, CanonicalRequest]:
        """Return the requests whose answers make up this one's; none where it is no composition.

        Found anew each time: which commit a hub revision is may be known only meanwhile.

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
        """The experiment that answers it, or None where statistics do."""
        return self.question if isinstance(self.question, Experiment) else None


Asked = Request | CanonicalRequest
"""What is asked of the engine: a request, or one that the asker has made canonical."""


def canonical(request: Asked) -> CanonicalRequest:
    """Return a request in canonical form; one that has it already as it is.

    Raises:
        UnknownAnalysis: no such analysis.
        InvalidField: a parameter that the analysis does not take, or of a wrong value; no request.
    """
    if isinstance(request, CanonicalRequest):
        return request
    request = Request.model_validate(request)
    question = analyses.find(request.analysis)
    return canonical_of(question, request.run, check_params(question, request.params))


def canonical_of(question: Question[P], run: RunSpec, params: P) -> CanonicalRequest:
    """Return the request of a question, with the run as far as the answer depends on it.

    Raises:
        BadRequest: the parameters do not fit the run.
    """
    fitting = _resolved(question.canonical(run, params))
    wire = Request(analysis=question.name, run=fitting, params=params.model_dump())
    return CanonicalRequest(question, params, wire)


def received(wire: Request) -> CanonicalRequest:
    """Return the canonical request that another process sent: checked, under the key it gave it.

    Raises:
        UnknownAnalysis: no such analysis.
        BadRequest: a parameter that the analysis does not take, or of a wrong value.
    """
    question = analyses.find(wire.analysis)
    return CanonicalRequest(question, check_params(question, wire.params), wire)


def check_params(question: Question[P], params: Mapping[str, Any]) -> P:
    """Return the parameters of a question, checked.

    Raises:
        InvalidField: a parameter that it does not take, or of a wrong value.
    """
    return question.params.model_validate(params, context={"of": question.name})


def _resolved(run: RunSpec) -> RunSpec:
    if run.corpus.fingerprint:
        return run
    return run.model_copy(update={"corpus": corpora.resolve(run.corpus)})
