"""The OpenAPI document of the answers for programs, from the declarations of both."""

import inspect
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from poskernel_core import __version__, analyses
from poskernel_core.client import CLIENT
from poskernel_core.common.result import Value
from poskernel_core.export.schema import DIALECT, listed
from serving.api import KEY, MAX_WAIT, Endpoint
from serving.asked import MAX_NUMBER, Asked, First
from serving.forms import FORMS
from serving.problems import MEDIA, STATUS

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
PARAMETERS: dict[str, Schema] = {
    "name": {"schema": TEXT, "description": "name of a question"},
    "key": {
        "schema": TEXT | {"pattern": f"^{KEY.pattern}$"},
        "description": "as in the Content-Location of an answer",
    },
    "id": {"schema": TEXT, "description": "as in the Location of a job"},
    "wait": {
        "schema": COUNT | {"maximum": MAX_WAIT},
        "description": "seconds to wait for the end of the job",
    },
    "head": {"schema": TEXT, "description": "one head, such as L0H3"},
    "query": {"schema": COUNT | {"maximum": MAX_NUMBER}, "description": "one query position"},
}


def document(endpoints: Iterable[Endpoint]) -> Schema:
    """Return the OpenAPI document of all endpoints."""
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": "PosKernel",
            "version": __version__,
            "description": "How a transformer's attention heads use position: stored answers, and "
            "new ones.",
        },
        "servers": [{"url": "."}],  # the folder of this document
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _operation(endpoint: Endpoint) -> Schema:
    named = re.findall(r"\{(\w+)\}", endpoint.path)
    parameters = [
        {"name": name, "in": "path" if name in named else "query", "required": name in named}
        | PARAMETERS[name]
        for name in (*named, *endpoint.queries)
    ]
    parameters.append(
        {
            "name": CLIENT,
            "in": "header",
            "schema": TEXT,
            "description": "a random name of the program, whose jobs are its own",
        }
    )
    described = " ".join((inspect.getdoc(endpoint.answer) or "").split())
    kind = "Request" if endpoint.path == "/answers" else "FirstRequest"
    body = {"content": {"application/json": {"schema": {"$ref": _ref(kind)}}}}
    return {
        "operationId": endpoint.answer.__name__,
        "summary": described,
        "parameters": parameters,
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, "content": _content(what)}
            for status, what in endpoint.returns.items()
        }
        | {"default": {"description": "a problem", "content": _content("Problem")}},
    } | ({"requestBody": body | {"required": True}} if endpoint.method == "POST" else {})


def _content(what: str) -> Schema:
    if what == "Answer":
        answer: Schema = {form.media: {"schema": {}} for form in FORMS}
        return answer | {FORMS[0].media: {"schema": {"$ref": _ref(what)}}}
    kinds = {"Problem": MEDIA, "Events": "text/event-stream"}
    schema = TEXT if what == "Events" else {"$ref": _ref(what)}
    return {kinds.get(what, "application/json"): {"schema": schema}}


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"


def _schemas() -> dict[str, Schema]:
    questions = analyses.ANALYSES
    request_schema = Asked.model_json_schema()
    request_schema["properties"]["question"] |= {"enum": [*questions]}
    request_schema["allOf"] = [
        {
            "if": {"properties": {"question": {"const": name}}},
            "then": {"properties": {"params": {"$ref": _ref(f"params.{name}")}}},
        }
        for name in questions
    ]
    fields = dict.fromkeys(listed(next(iter(questions.values()))), TEXT)
    names = [*inspect.signature(Value).parameters]
    value = {"type": "object", "properties": {name: {} for name in names}}
    objects = {"type": "array", "items": {"type": "object"}}
    return {
        "Request": request_schema,
        **{
            f"params.{name}": analysis.params.model_json_schema()
            for name, analysis in questions.items()
        },
        "FirstRequest": First.model_json_schema(),
        "Models": objects,
        "First": objects,
        "Questions": {"type": "array", "items": {"type": "object", "properties": fields}},
        "Question": {
            "type": "object",
            "properties": fields
            | {"params": {"type": "object"}, "values": {"type": "array", "items": value}}
            | {"answer": {"type": "object", "description": "JSON Schema of the answers"}},
        },
        "Answer": {"type": "object", "description": "by the schema of its question: answer"},
        "Job": {
            "type": "object",
            "properties": {"id": TEXT, "question": TEXT, "state": TEXT, "note": TEXT}
            | {"done": COUNT, "total": COUNT, "seconds_left": {"type": ["number", "null"]}}
            | {"answer": TEXT | {"description": "where the answer is"}}
            | {"problem": {"$ref": _ref("Problem")}},
        },
        "Document": {"type": "object"},
        "Problem": {
            "type": "object",
            "properties": {
                "status": {"type": "integer", "examples": sorted({*STATUS.values()})},
                "title": TEXT,
                "detail": TEXT | {"description": "one sentence"},
                "error": TEXT | {"description": "the class of the error"},
                "field": TEXT | {"description": "the field of the request that is wrong"},
            },
            "required": ["status", "title", "detail", "error"],
        },
    }
