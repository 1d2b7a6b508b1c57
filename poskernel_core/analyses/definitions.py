"""Definitions of all analyses and experiments, read from their docstrings and declarations.

Each docstring has a first line and four paragraphs that begin with their names: Formula, Choices,
Limits, Source.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from poskernel_core.analyses import ANALYSES, find
from poskernel_core.analyses.base import UNKNOWN, Experiment, Question, bounds_of
from poskernel_core.common.result import Result, Value, errors_told
from poskernel_core.common.rounding import counted

SECTIONS = ("Formula", "Choices", "Limits", "Source")
STRETCHES = {"stretches": "stretches of one text"}
_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`")


@dataclass(frozen=True)
class Method:
    """What one question computes, in Markdown with formulas between dollar signs.

    Attributes:
        name: the argument of ``show``.
        title: the heading.
        summary: one sentence.
        about: further paragraphs.
        values: the outputs with axes and unit, one entry for each meaning.
        formula, choices, limits, source: the parts of the docstring.
        params: name, default, bounds and meaning of each parameter.
        runs_model: whether the question is an experiment, which runs the model again.
    """

    name: str
    title: str
    summary: str
    about: str
    values: tuple[str, ...]
    formula: str
    choices: str
    limits: str
    source: str
    params: tuple[tuple[str, str, str, str], ...]
    runs_model: bool


def methods() -> list[Method]:
    """Return the definitions of all analyses and experiments, in their order."""
    return [_method(question) for question in ANALYSES.values()]


def method_of(name: str) -> Method:
    """Return the definition of one analysis or experiment.

    Raises:
        UnknownAnalysis: no analysis has that name.
    """
    return _method(find(name))


def values_of(question: str, *names: str) -> list[str]:
    """Return axes, unit and meaning of some values of an analysis, one entry for each meaning.

    Raises:
        UnknownAnalysis: no analysis has that name.
        KeyError: the analysis has no such value.
    """
    declared = {value.name: value for value in find(question).values}
    return list(_described([declared[name] for name in names]))


def as_markdown(text: str) -> str:
    """Convert reStructuredText to Markdown: code marks, and plain names for references."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def errors_of(result: Result) -> str:
    """Return a sentence that says what a result's errors count; empty without errors."""
    question = ANALYSES.get(result.analysis)
    own = question.error_counts if question else ""
    entries = [(unit or own, groups) for unit, groups in errors_told(result.provenance)]
    if not result.errors or not all(unit for unit, _ in entries):
        return ""
    if entries == [(UNKNOWN, 0)]:
        return "No errors: these numbers are of one text, or of sums that are not kept by groups."
    if entries == [("queries", 0)]:
        return "Errors count queries alone, not the texts that the mean keys come from."
    comma = "," if len(entries) == 1 else ""
    parts = [
        STRETCHES.get(unit, unit) + (f"{comma} in {counted(groups, 'group')}" if groups else "")
        for unit, groups in entries
    ]
    most = "at most " if len({groups for _, groups in entries}) > 1 else "about "
    less = "Numbers are corrected for bias. " if result.biases else ""
    return less + (
        f"Errors count {', '.join(parts[:-1])}{' or ' if parts[1:] else ''}{parts[-1]}; a 95 % "
        f"interval is {most}{result.interval:.2f} errors wide on either side."
        f"{_too_narrow(result)}"
    )


def _too_narrow(result: Result) -> str:
    """Return which intervals are too narrow in some heads, as windows are few."""
    question, windows = ANALYSES.get(result.analysis), result.provenance.get("windows")
    if question is None or not isinstance(windows, int):
        return ""
    titles = {measure.value: measure.title for measure in question.measures}
    narrow = [
        titles.get(name, name.replace("_", " ")) + (f" (below {least} windows)" if least else "")
        for name, least in question.narrow_below
        if name in result.errors and (not least or windows < least)
    ]
    return f" Too narrow in some heads: the intervals of {', '.join(narrow)}." if narrow else ""


def limits_of(field: FieldInfo) -> str:
    """Return a parameter's bounds, such as ``0 to 32``, or its choices; empty if there are none."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(get_args(field.annotation))
    limits = bounds_of(field)
    letters = "max_length" in limits
    least, most = (
        limits.get("min_length", limits.get("ge")),
        limits.get("le", limits.get("max_length")),
    )
    if "gt" in limits:
        return f"above {limits['gt']:,}" + ("" if most is None else f", up to {most:,}")
    if most is None:
        return "" if least is None else f"at least {least:,}"
    unit = " characters" if letters else ""
    return f"up to {most:,}{unit}" if least is None else f"{least:,} to {most:,}{unit}"


def _method(question: Question[Any]) -> Method:
    text = as_markdown(inspect.getdoc(type(question)) or "")
    summary, *rest = (block.strip() for block in text.split("\n\n") if block.strip())
    about, parts = [], dict.fromkeys(map(str.lower, SECTIONS), "")
    for paragraph in rest:
        name, _, body = paragraph.partition(":")
        if name in SECTIONS:
            parts[name.lower()] = " ".join(body.split())
        else:
            about.append(paragraph)
    return Method(
        name=question.name,
        title=question.title,
        summary=summary,
        about="\n\n".join(about),
        values=tuple(_described((*question.values, *question.texts))),
        params=tuple(
            (
                name,
                "" if field.is_required() else str(field.default),
                limits_of(field),
                field.description or "",
            )
            for name, field in question.params.model_fields.items()
        ),
        runs_model=isinstance(question, Experiment),
        **parts,
    )


def _described(values: Iterable[Value]) -> Iterator[str]:
    for (axes, unit, meaning), rows in groupby(
        values, key=lambda value: (value.axes, value.unit, value.meaning)
    ):
        names = ", ".join(f"`{value.name}`" for value in rows)
        shape = f" `[{', '.join(axes)}]`" if axes else ""
        yield f"{names}{shape}, {unit}: {as_markdown(meaning)}"
