"""The definitions of everything that can be asked for, read from the docstrings of the code.

The docstring of every analysis and experiment has a first line, what it returns as a list, and four
parts, each a paragraph that begins with its name: Formula, Choices, Limits, Source.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from poskernel_core.analyses import ANALYSES, find
from poskernel_core.analyses.base import Experiment, Question

__all__ = ["PARTS", "Method", "as_markdown", "method_of", "methods"]

PARTS = ("Formula", "Choices", "Limits", "Source")
_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`")


@dataclass(frozen=True)
class Method:
    """What one question computes, in Markdown with formulas between dollar signs.

    Attributes:
        name: what ``show`` takes; ``title``: what it is called.
        summary: one sentence; ``about``: further paragraphs.
        values: what the result holds, one entry a bullet.
        formula, choices, limits, source: the parts of the docstring.
        params: name, default and meaning of each parameter.
        runs_model: whether the model is run again (an experiment), or statistics are read.
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
    params: tuple[tuple[str, str, str], ...]
    runs_model: bool


def methods() -> list[Method]:
    """Return the definitions of all analyses and experiments, in their order."""
    return [_method(question) for question in ANALYSES.values()]


def method_of(name: str) -> Method:
    """Return the definition of one analysis or experiment.

    Raises:
        UnknownAnalysis: none has that name.
    """
    return _method(find(name))


def as_markdown(text: str) -> str:
    """Return reStructuredText as Markdown: code marks, and names instead of references."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _method(question: Question) -> Method:
    summary, *rest = _paragraphs(inspect.getdoc(type(question)) or "")
    parts = {name.lower(): _part(rest, name) for name in PARTS}
    about = [p for p in rest if not p.startswith("* ") and not _names_part(p)]
    return Method(
        name=question.name,
        title=question.title,
        summary=summary,
        about="\n\n".join(about),
        values=tuple(value for p in rest if p.startswith("* ") for value in _bullets(p)),
        params=_params(question),
        runs_model=isinstance(question, Experiment),
        **parts,
    )


def _paragraphs(text: str) -> list[str]:
    return [as_markdown(p.strip()) for p in text.split("\n\n") if p.strip()]


def _names_part(paragraph: str) -> bool:
    return any(paragraph.startswith(f"{name}:") for name in PARTS)


def _part(paragraphs: list[str], name: str) -> str:
    """Return a part as one line of Markdown, or nothing where it is missing."""
    found = (p for p in paragraphs if p.startswith(f"{name}:"))
    return _joined(next(found, "").removeprefix(f"{name}:"))


def _bullets(paragraph: str) -> list[str]:
    return [_joined(each) for each in re.split(r"(?:^|\n)\* ", paragraph) if each.strip()]


def _joined(text: str) -> str:
    return " ".join(text.split())


def _params(question: Question) -> tuple[tuple[str, str, str], ...]:
    fields = question.params.model_fields.items()
    return tuple(
        (name, "" if field.is_required() else str(field.default), field.description or "")
        for name, field in fields
    )
