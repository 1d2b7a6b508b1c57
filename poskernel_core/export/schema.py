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
    asked = find(question)
    return listed(asked) | {
        "selectable": asked.selectable(),
        "params": asked.params.model_json_schema(),
        "values": [
            {
                "name": each.name,
                "axes": [*each.axes],
                "unit": each.unit,
                "meaning": as_markdown(each.meaning),
                "kind": each.kind if each.has_interval else None,
                "labels": [*each.labels],
                "optional": each.optional,
            }
            for each in (*asked.values, *asked.texts)
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
    asked = find(question)
    head = {"$schema": DIALECT, "title": asked.title, "type": "object"}
    parts: tuple[str, ...] = ("values", "lows", "highs", "errors")
    fields: Schema = {"windows": COUNT, "of": COUNT}
    if not live:
        run = {name: {"type": ["string", *kinds]} for name, kinds in RUN.items()}
        given, of = asked.params.model_json_schema(), asked.params.model_fields
        needed = [name for name in given["properties"] if not of[name].exclude_if]
        fields = {
            "analysis": {"const": asked.name},
            "run": {
                "type": "object",
                "properties": run | {"params": given | {"required": needed}},
                "required": [*run, "params"],
            },
            "units": _closed(
                {
                    name: TEXT if each.unit == OF_MEASURE else {"const": each.unit}
                    for name, each in _declared(asked).items()
                },
                _optional(asked),
            ),
            "identity": {"type": "object"},
            "error_counts": TEXT,
            "finding": TEXT,
        }
        parts = ("at", "values", *BESIDE, "texts", "axes", "coordinates")
    kept = _closed(fields | dict.fromkeys(parts, True), ["finding"])
    chosen = []
    # the axes that ``--head`` and ``--query`` may take away, if they are no parameters
    heads = [(), ("layer", "head")] if "head" in asked.selectable() else [()]
    queries = [(), ("query",)] if "query" in asked.selectable() else [()]
    for gone in (head + query for head, query in product(heads, queries)):
        each = _parts(asked, gone, live=live)
        chosen.append({"properties": {part: each[part] for part in parts}})
    return head | kept | {"anyOf": chosen}


def _parts(question: Question[Any], gone: tuple[str, ...], *, live: bool) -> dict[str, Schema]:
    """Return the schemas of the parts of an answer from which ``gone`` axes were selected."""
    axes = {
        name: tuple(axis for axis in each.axes if axis not in gone)
        for name, each in _declared(question).items()
    }
    numeric = {each.name for each in question.values}
    texts = {name: _array(TEXT, every) for name, every in axes.items() if name not in numeric}
    optional = _optional(question)
    if live:
        optional |= {each.name for each in question.values if each.over_positions}
    values = {}
    for each in question.values:  # null where there is no number, or no label
        other = ["string"] if each.unit == OF_MEASURE else []
        leaf = (
            {"enum": [*each.labels, None]} if each.labels else {"type": ["number", "null", *other]}
        )
        values[each.name] = {"description": as_markdown(each.meaning)}
        values[each.name] |= _array(leaf, axes[each.name])
    estimated = {
        each.name: _array({"type": ["number", "null"]}, axes[each.name])
        for each in question.values
        if each.has_interval
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
    told = replace(TOKENS, optional=True)
    return {each.name: each for each in (told, *question.values, *question.texts)}


def _optional(question: Question[Any]) -> set[str]:
    return {name for name, each in _declared(question).items() if each.optional}


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
