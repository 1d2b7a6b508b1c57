"""The options of one analysis, made from its parameters: name, meaning, default and bounds."""

from __future__ import annotations

import typing
from types import NoneType
from typing import Annotated, Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from poskernel_core.analyses import Question
from poskernel_core.analyses.definitions import limits_of
from poskernel_core.cli.grammar import Option, Value, either

__all__ = ["OWN_SECTION", "PREFIX", "default_of", "own_option"]

OWN_SECTION = "Options of this analysis"
PREFIX = "param_"
"""Begins the Python name of an analysis' own option, so that none is taken for one of a run."""

VALUE_NAMES = {int: ("a whole number", "N"), float: ("a number", "X"), str: ("a text", "TEXT")}
"""What a parameter of a type is called in a sentence, and in the first column of the help."""


def own_option(question: Question[Any], name: str) -> Option:
    """Return the option of one parameter of an analysis."""
    field = question.params.model_fields[name]
    kind = _kind(field)
    checked: Any = Annotated[kind, field]
    words = _choices(kind)
    limits = limits_of(field)
    called, metavar = (either(words), "|".join(words)) if words else VALUE_NAMES[kind]
    return Option(
        f"--{name.replace('_', '-')}",
        f"{PREFIX}{name}",
        section=OWN_SECTION,
        what=field.description or "",
        facts=(default_of(field), limits),
        metavar=metavar,
        required=field.is_required(),
        type=Value(
            f"{called} ({limits})" if limits else called,
            TypeAdapter(checked).validate_python,
        ),
    )


def default_of(field: FieldInfo) -> str:
    """Return a parameter's default as the help shows it; nothing where it stands for nothing."""
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"default: {str(value).lower()}"
    if isinstance(value, str):
        return f"default: {value if value == value.strip() else repr(value)}"
    return f"default: {value:,g}" if isinstance(value, float) else f"default: {value:,}"


def _kind(field: FieldInfo) -> Any:
    """Return the type of a parameter that is given: ``int`` of ``int | None``."""
    kinds = [each for each in typing.get_args(field.annotation) if each is not NoneType]
    return kinds[0] if NoneType in typing.get_args(field.annotation) else field.annotation


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
