"""The JSON Schema of what ``show --json`` prints, made from the declarations of a question."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from poskernel_core.analyses import find
from poskernel_core.analyses.base import Question
from poskernel_core.analyses.definitions import as_markdown, method_of
from poskernel_core.common.result import BESIDE, OF_MEASURE, TOKENS, Value

Schema = dict[str, Any]
Axes = Mapping[str, tuple[str, ...]]
"""The axes of every value and text, without those that ``--head`` and ``--query`` chose."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
RUN: dict[str, tuple[str, ...]] = {
    "model": (),
    "model_title": (),
    "revision": ("null",),
    "model_fingerprint": (),
    "corpus": (),
    "context": ("integer",),
    "windows": ("integer",),
    "start_token": ("boolean", "null"),
    "seed": ("integer",),
    "dtype": (),
    "date": (),
}
"""The provenance that every answer has: texts, as where compared runs differ, or what is named."""


def listed(question: Question[Any]) -> Schema:
    """Return what a list of analyses says of one: name, title and summary."""
    method = method_of(question.name)
    return {"name": question.name, "title": method.title, "summary": method.summary}


def described(question: str) -> Schema:
    """Return a description of an analysis for programs: parameters, values, schema of answers.

    Raises:
        UnknownAnalysis: no analysis has that name.
    """
    analysis = find(question)
    return listed(analysis) | {
        "selectable": analysis.selectable(),
        "params": analysis.params.model_json_schema(),
        "values": [
            {
                "name": value.name,
                "axes": [*value.axes],
                "unit": value.unit,
                "meaning": as_markdown(value.meaning),
                "kind": value.kind if value.has_interval else None,
                "labels": [*value.labels],
                "optional": value.optional,
            }
            for value in (*analysis.values, *analysis.texts)
        ],
        "answer": schema(question),
        "stage": schema(question, live=True),
    }


def schema(question: str, *, live: bool = False) -> Schema:
    """Return the JSON Schema of the answers to a question, as ``show --json`` prints them.

    With ``live``, it is that of each line that ``show --live --json`` prints; those on the way may
    lack values.

    Raises:
        UnknownAnalysis: no question has that name.
    """
    analysis = find(question)
    head = {"$schema": DIALECT, "title": analysis.title, "type": "object"}
    parts: tuple[str, ...] = ("values", "lows", "highs", "errors")
    fields: Schema = {"windows": COUNT, "of": COUNT}
    if not live:
        run = {name: {"type": ["string", *kinds]} for name, kinds in RUN.items()}
        given, of = analysis.params.model_json_schema(), analysis.params.model_fields
        needed = [name for name in given["properties"] if not of[name].exclude_if]
        fields = {
            "analysis": {"const": analysis.name},
            "run": {
                "type": "object",
                "properties": run | {"params": given | {"required": needed}},
                "required": [*run, "params"],
            },
            "units": _closed(
                {
                    name: TEXT if value.unit == OF_MEASURE else {"const": value.unit}
                    for name, value in _declared(analysis).items()
                },
                _optional(analysis),
            ),
            "identity": {"type": "object"},
            "error_counts": TEXT,
            "finding": TEXT,
        }
        parts = ("at", "values", *BESIDE, "texts", "axes", "coordinates")
    kept = _closed(fields | dict.fromkeys(parts, True), ["finding"])
    chosen = []
    # the axes that ``--head`` and ``--query`` may take away, if they are no parameters
    heads = [(), ("layer", "head")] if "head" in analysis.selectable() else [()]
    queries = [(), ("query",)] if "query" in analysis.selectable() else [()]
    for gone in (head + query for head, query in product(heads, queries)):
        schemas = _parts(analysis, gone, live=live)
        chosen.append({"properties": {part: schemas[part] for part in parts}})
    return head | kept | {"anyOf": chosen}


def _parts(question: Question[Any], gone: tuple[str, ...], *, live: bool) -> dict[str, Schema]:
    """Return the schemas of the parts of an answer from which ``gone`` axes were selected."""
    axes = {
        name: tuple(axis for axis in declared.axes if axis not in gone)
        for name, declared in _declared(question).items()
    }
    numeric = {declared.name for declared in question.values}
    texts = {name: _array(TEXT, every) for name, every in axes.items() if name not in numeric}
    optional = _optional(question)
    if live:
        optional |= {declared.name for declared in question.values if declared.over_positions}
    values = {}
    for value in question.values:  # null where there is no number, or no label
        other = ["string"] if value.unit == OF_MEASURE else []
        leaf = (
            {"enum": [*value.labels, None]}
            if value.labels
            else {"type": ["number", "null", *other]}
        )
        values[value.name] = {"description": as_markdown(value.meaning)}
        values[value.name] |= _array(leaf, axes[value.name])
    estimated = {
        declared.name: _array({"type": ["number", "null"]}, axes[declared.name])
        for declared in question.values
        if declared.has_interval
    }
    numbers = _list({"type": ["number", "null"]})
    along = {axis: numbers for every in axes.values() for axis in every}
    return {
        "at": _closed(dict.fromkeys(gone, COUNT)),
        "values": _closed(values, optional),
        "texts": _closed(texts, optional),
        **dict.fromkeys(BESIDE, _closed(estimated, estimated)),
        "axes": _closed({name: {"const": [*every]} for name, every in axes.items()}, optional),
        "coordinates": _closed(along, along),
    }


def _declared(question: Question[Any]) -> dict[str, Value]:
    tokens = replace(TOKENS, optional=True)
    return {value.name: value for value in (tokens, *question.values, *question.texts)}


def _optional(question: Question[Any]) -> set[str]:
    return {name for name, value in _declared(question).items() if value.optional}


def _array(leaf: Schema, axes: tuple[str, ...]) -> Schema:
    return _list(_array(leaf, axes[1:])) if axes else leaf


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _closed(properties: Mapping[str, Any], optional: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in {*optional}],
        "additionalProperties": False,
    }
