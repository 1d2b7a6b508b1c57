"""What a program's request asks for, read strictly: its body, and what follows the '?'."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from pydantic import Field
from starlette.requests import Request

from poskernel_core import analyses
from poskernel_core.api import RUN_FIELDS, build_request, check_fields, default_requests
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.specs import Spec
from poskernel_core.data.texts import TYPED
from poskernel_core.engine.plan import Plan, make_plan
from poskernel_core.models.training import check_revision
from serving.problems import Problem

MAX_BODY = 10**6
MAX_DEPTH = 16
MAX_NUMBER = 10**9 - 1
S = TypeVar("S", bound=Spec)


class Asked(Spec):
    """A question as a program sends it: the arguments of ``pk.show``."""

    called = "request"

    question: str = Field(description="name of the analysis: see questions")
    model: str = Field(description="name of a model on offer: see models")
    revision: str | None = Field(None, description="a checkpoint of its training")
    head: str | None = Field(None, description="one head, such as L0H3; all if not given")
    query: int | None = Field(None, description="one query position")
    params: dict[str, Any] = Field(
        default_factory=dict, description="parameters of the analysis: see questions/NAME"
    )
    run: dict[str, Any] = Field(
        default_factory=dict, description=f"fields of the run: {', '.join(sorted(RUN_FIELDS))}"
    )
    detach: bool = Field(False, description="go on computing when the program has gone")


class First(Spec):
    """What the pages of a model show first: the arguments of ``pk.precompute``."""

    called = "request"

    model: str
    revision: str | None = None
    run: dict[str, Any] = Field(default_factory=dict)
    experiments: bool = False


@dataclass(frozen=True)
class Wanted:
    """The plan of a request, the part of its answer, and whether it goes on without its client."""

    plan: Plan
    chosen: dict[str, int]
    detach: bool = False


def planned(body: Asked) -> Wanted:
    """Return what a request comes to; call it from outside (``common.outside``).

    Raises:
        PosKernelError: the request does not fit, or names what is not on offer.
    """
    question = analyses.find(body.question)
    _check_run(body, body.question, question.params.model_fields)
    check_revision(body.model, body.revision)
    request, chosen = build_request(
        body.question, body.model, head=body.head, query=body.query, params=body.params,
        files=False, revision=body.revision, **body.run,
    )  # fmt: skip
    plan = make_plan(request)
    for part in plan.parts.values():
        if part.run.model != plan.run.model:
            check_revision(part.run.model.name, part.run.model.revision)
    return Wanted(plan, chosen, body.detach)


def first(body: First) -> list[dict[str, Any]]:
    """Return the questions that the pages of a model show first, with their parameters.

    Raises:
        PosKernelError: the request does not fit, or names what is not on offer.
    """
    _check_run(body, "", ())
    check_revision(body.model, body.revision)
    requests = default_requests(
        body.model, experiments=body.experiments, revision=body.revision, **body.run
    )
    return [{"question": request.analysis, "params": request.params} for request in requests]


def _check_run(body: Asked | First, question: str, params: Collection[str]) -> None:
    """Check that the fields of a run are some, and no other arguments of ``pk.show``."""
    if wrong := {name: value for name, value in body.run.items() if name not in RUN_FIELDS}:
        check_fields(question, wrong, params)
        raise Problem(400, "Give 'revision' beside 'run', not in it.", "run.revision")


def typed(params: Mapping[str, Any], corpus: str) -> bool:
    """Return whether an answer with these parameters is about a text that somebody typed."""
    return TYPED in corpus.split(", ") or any(params.get(name) for name in _typed())


@cache
def _typed() -> frozenset[str]:
    every = analyses.ANALYSES.values()
    return frozenset(name for analysis in every for name in analysis.params.typed_texts())


async def body_of(request: Request) -> bytes:
    """Return the body of a request; more than is allowed is not read, whatever its header says."""
    if (coding := request.headers.get("content-encoding", "identity")) != "identity":
        raise Problem(415, f"Expected a body that is not compressed, got {coding[:80]!r}.")
    if "transfer-encoding" in request.headers:
        raise Problem(411, "Expected a body with its length: send 'Content-Length'.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Problem(413, f"Expected a body of up to {MAX_BODY:,} bytes, got more.")
    return body


def read(body: bytes, kind: type[S]) -> S:
    """Read a request of a kind.

    Raises:
        Problem: it is no JSON object, or has a field twice.
        InvalidField: its fields are others.
    """
    try:
        document = json.loads(
            body.decode(), object_pairs_hook=_fields, parse_constant=_number, parse_float=_number,
            parse_int=_whole,
        )  # fmt: skip
        json.dumps(document, ensure_ascii=False).encode()  # fails for half a character
    except RecursionError as error:
        raise Problem(400, "Expected a JSON object, and it is nested too deeply.") from error
    except ValueError as error:
        why = str(error).partition(":")[0].removesuffix(".")
        raise Problem(
            400, f"Expected a JSON object in UTF-8, got something else: {why}."
        ) from error
    if not isinstance(document, dict):
        raise Problem(400, f"Expected a JSON object, got {type(document).__name__}.")
    if _deeper(document, MAX_DEPTH):
        raise Problem(400, f"Expected JSON nested up to {MAX_DEPTH} times, got more.")
    return kind.model_validate(document)


def _deeper(value: Any, most: int) -> bool:
    """Return whether a value is nested more than so many times."""
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_deeper(part, most - 1) for part in parts)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("it has a field twice")
    return fields


def _number(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is no number of JSON")
    return value


def _whole(text: str) -> int:
    if len(text) > len(str(-MAX_NUMBER)):
        raise ValueError(f"{text[:20]} is beyond a billion")
    return int(text)


def queries_of(request: Request, known: Collection[str]) -> dict[str, str]:
    """Return what follows the '?' of a request.

    Raises:
        Problem: a name that the address does not know, or one twice.
    """
    given = request.query_params
    for name in given:
        if name not in known or len(given.getlist(name)) > 1:
            expected = f"one of {', '.join(known)}, once" if known else "none"
            raise Problem(400, f"Expected {expected} after '?', got {name[:80]!r}.", name[:80])
    return dict(given)


def number(queries: Mapping[str, str], name: str, most: int, default: int = 0) -> int:
    """Return a whole number that follows the '?'.

    Raises:
        Problem: it is something else, or too large.
    """
    text = queries.get(name, str(default))
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) > most:
        raise Problem(400, f"Expected 0 to {most:,} as {name!r}, got {text[:80]!r}.", name)
    return int(text)


def part_of(queries: Mapping[str, str]) -> dict[str, int]:
    """Return the coordinates of the head and the query position that follow the '?'.

    Raises:
        PosKernelError: they are none.
    """
    chosen = {}
    if "head" in queries:
        chosen["layer"], chosen["head"] = parse_cell(queries["head"], MAX_NUMBER, MAX_NUMBER)
    if "query" in queries:
        chosen["query"] = number(queries, "query", MAX_NUMBER)
    return chosen
