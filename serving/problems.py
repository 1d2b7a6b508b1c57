"""Errors for programs: ``application/problem+json`` with the one sentence of the exception."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from poskernel_core.common import errors
from serving.clients import is_local

MEDIA = "application/problem+json"
MAX_SENTENCE = 1000
STATUS: dict[type[Exception], int] = {
    errors.UnknownModel: 404,
    errors.UnknownCorpus: 404,
    errors.UnknownAnalysis: 404,
    errors.ComputeDisabled: 409,
    errors.Cancelled: 409,
    errors.TooLarge: 413,
    errors.Busy: 503,
    errors.StoreFailed: 503,
    errors.BadRequest: 400,
}
"""The status of each error and of those that derive from it; 500 for others."""

FIELDS: dict[type[Exception], str] = {
    errors.UnknownAnalysis: "question",
    errors.UnknownModel: "model",
    errors.UnsupportedModel: "model",
    errors.NotInModel: "model",
    errors.UnknownCorpus: "run.corpus",
    errors.TooLittleText: "run.corpus",
    errors.UnknownField: "run",
}
"""The field of a request that an error is about."""

DESCRIBED = {"run": "run", "corpus": "run.corpus", "model": "model", "analysis": "params"}
"""Where the fields of a description stand in a request."""

PATHS = re.compile(r"(?<![\w:/.~])(?:~|\.{1,2})?(?:/[^/\s'\",:;()]+)+/?|\b[A-Za-z]:\\[^\s'\",;]+")
"""Paths of the host in a sentence, which only this machine is told."""

RETRY_AFTER = 10
"""Seconds for ``Retry-After`` where the server is busy."""

BROKEN = "Something failed on the server: ask again, or tell its host, whose log says more."
LOG = logging.getLogger("uvicorn.error")


@dataclass(eq=False)
class Problem(Exception):
    """A refusal: its status, the sentence, the field that is wrong, and headers of the answer."""

    status: int
    sentence: str
    field: str = ""
    headers: Mapping[str, str] | None = None
    error: str = errors.BadRequest.__name__

    def fields(self, *, local: bool) -> dict[str, Any]:
        """Return the members of the answer; paths are cut unless the caller is on this machine."""
        sentence = self.sentence if local else without_paths(self.sentence)
        if len(sentence) > MAX_SENTENCE:
            sentence = f"{sentence[:600]} ... {sentence[-300:]}"
        members = {
            "status": self.status,
            "title": HTTPStatus(self.status).phrase,
            "detail": sentence,
        }
        return members | {"error": self.error} | ({"field": self.field} if self.field else {})

    def response(self, scope: Scope) -> Response:
        """Return the answer to a request."""
        headers = {"Cache-Control": "no-store", **(self.headers or {})}
        return JSONResponse(self.fields(local=is_local(scope)), self.status, headers, MEDIA)


def without_paths(sentence: str) -> str:
    """Return a sentence as it is told to other machines."""
    return PATHS.sub("…", sentence)


def problem_of(error: Exception) -> Problem:
    """Return what a caller is told of an error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        sentences = {404: "There is nothing at this address: see openapi.json for what is."}
        sentences[405] = "This address does not take that method: see openapi.json."
        sentence = sentences.get(error.status_code, error.detail)
        return Problem(error.status_code, sentence, headers=error.headers)
    kinds = type(error).__mro__
    status = next((STATUS[kind] for kind in kinds if kind in STATUS), 500)
    if not isinstance(error, errors.PosKernelError):
        return Problem(500, BROKEN, error=errors.ComputeFailed.__name__)
    place = next((FIELDS[kind] for kind in kinds if kind in FIELDS), "")
    if isinstance(error, errors.InvalidField):
        place = ".".join(filter(None, (DESCRIBED.get(error.of), error.field)))
    again = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
    return Problem(status, str(error), place, again, type(error).__name__)


async def answered(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed; the log has what nobody expected."""
    problem = problem_of(error)
    if problem.status == 500:
        LOG.error("A program's request failed.", exc_info=error)
    return problem.response(request.scope)
