"""Write the reference from the declarations of the code: `python tools/reference.py [FOLDER]`.

The text is in `reference.md.jinja`. The pages link to each other, to the pages of `docs/reference`,
and to `docs/concepts`: they are made to stand in `docs/reference`, or in a copy of it.
"""

from __future__ import annotations

import ast
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import jinja2
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
logging.disable(logging.WARNING)  # Streamlit's, that it runs without a server

import pages
import poskernel_core as pk
from pages.shared.cards.explained import sections
from poskernel_core.analyses import ANALYSES, Question
from poskernel_core.analyses.definitions import as_markdown, limits_of, method_of
from poskernel_core.cli.main import PROGRAM
from poskernel_core.common import errors
from poskernel_core.common.result import Value
from poskernel_core.common.settings import PUBLIC, Settings, variable
from poskernel_core.engine.engine import Engine
from serving.api import Api
from serving.callers import Callers
from serving.openapi import document

TARGET = ROOT / "build" / "reference"
MADE = "<!-- Written by tools/reference.py: change the declarations in the code, not this file. -->"
UNTOLD = "…"
"""Stands for the part of a text that differs from case to case."""

SINGLE = ("interface", "commands", "http", "settings", "addresses", "errors", "generated")
SHARED = {"instrument": "The sidebar of every page", "shared": "Parts of several pages"}


def cell(text: str) -> str:
    """Return the text of a table's cell; a bar does not end it, in a formula by its name."""
    line = " ".join(text.split())
    line = re.sub(r"\$[^$]+\$", lambda found: found[0].replace("|", r"\vert "), line)
    return line.replace("|", r"\|")


def default_of(field: FieldInfo) -> str:
    """Return the default of a parameter or a setting, as Python writes it."""
    return "required" if field.is_required() else f"`{field.default!r}`"


def ours() -> list[Question[Any]]:
    return [each for each in ANALYSES.values() if type(each).__module__.startswith(pk.__name__)]


def merged(question: Question[Any]) -> Iterator[tuple[list[str], Value]]:
    """Yield the values and texts that differ only in name: their names, and one of them."""
    for _, alike in groupby(question.values + question.texts, lambda each: replace(each, name="")):
        every = list(alike)
        yield [each.name for each in every], every[0]


def help_of(*path: str) -> str:
    """Return what a command prints as its help."""
    wide = {"terminal_width": 100, "max_content_width": 100}
    command: Any = PROGRAM
    context = click.Context(command, info_name=command.name, **wide)
    for name in path:
        command = command.get_command(context, name)
        context = click.Context(command, context, info_name=name, **wide)
    return command.get_help(context)


def addressed() -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yield each page's address and declaration, and its widgets by parameter; then shared ones."""
    for folder in (*pages.NAMES, *SHARED):
        place = pages.module_of(folder).PLACE if folder in pages.NAMES else None
        yield (
            SHARED.get(folder, folder),
            place,
            dict(found for tree in trees(ROOT / "pages" / folder) for found in linked_in(tree)),
        )


def linked_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield parameter and label of the widgets that name their parameter of the address."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        keys = node.args[2:3] if ast.unparse(node.func) in ("choose_one", "fields.choose") else []
        settings = [*node.args[1:2], *(word for word in node.keywords if not word.arg)]
        for part in (part for setting in settings for part in ast.walk(setting)):
            if isinstance(part, ast.Call) and ast.unparse(part.func).startswith("fitted"):
                keys = part.args[:1]
        for key in keys:
            if isinstance(key, ast.Constant):
                yield str(key.value), told(node.args[0])


def failures() -> Iterator[tuple[type[pk.PosKernelError], str, list[str]]]:
    """Yield each error, its base, and the messages with which the code raises it."""
    known = {
        name: each
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, pk.PosKernelError)
    }
    said: dict[str, set[str]] = {name: set() for name in known}
    for tree in trees(ROOT / "poskernel_core"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                said.get(ast.unparse(node.exc.func), set()).add(told(node.exc.args[0]))
    for name, each in known.items():
        base = each.__mro__[1].__name__
        messages = sorted(text for text in said[name] if len(text) > len(UNTOLD))
        yield each, base if base in known else "", messages


def told(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(told, node.values))
    if isinstance(node, ast.BinOp):
        return told(node.left) + told(node.right)
    return told(node.values[-1]) if isinstance(node, ast.BoolOp) else UNTOLD


def trees(folder: Path) -> Iterator[ast.Module]:
    for file in sorted(folder.rglob("*.py")):
        yield ast.parse(file.read_text("utf-8"))


def stub(name: str) -> str:
    """Return the source of a public name, with docstrings for bodies."""
    home = sys.modules[getattr(pk, name).__module__]
    tree = ast.parse(Path(str(home.__file__)).read_text("utf-8"))
    return ast.unparse(bare(next(node for node in tree.body if getattr(node, "name", "") == name)))


def bare(node: Any) -> Any:
    """Return a function without its body, a class with its fields and public methods."""
    text = ast.get_docstring(node, clean=False) or ""
    if isinstance(node, ast.FunctionDef):  # how it is kept in memory concerns no reader
        node.decorator_list = [d for d in node.decorator_list if not isinstance(d, ast.Call)]
    kept = [ast.Expr(ast.Constant(text))]
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            kept.append(bare(each))
        elif isinstance(each, ast.AnnAssign):
            kept.append(each)
    node.body = kept
    return node


def written() -> dict[str, str]:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters |= {"cell": cell, "default_of": default_of, "limits": limits_of}
    environment.filters |= {"markdown": as_markdown}
    environment.globals |= {
        **{"ours": ours, "merged": merged, "method_of": method_of, "sections": sections},
        **{"help_of": help_of, "PROGRAM": PROGRAM, "stub": stub, "names": sorted(pk.__all__)},
        **{"Settings": Settings, "PUBLIC": PUBLIC, "variable": variable},
        **{"web": document(Api(lambda: Engine(), Callers()).endpoints())},
        **{"addressed": addressed, "failures": failures, "UNTOLD": UNTOLD},
    }
    made: Any = environment.from_string(Path(__file__).with_suffix(".md.jinja").read_text("utf-8"))
    found = {name: getattr(made.module, name)() for name in SINGLE}
    found["questions/index"] = made.module.questions()
    for each in ours():
        place = pages.module_of(pages.page_showing(each.name)).PLACE
        found[f"questions/{each.name}"] = made.module.question(each, method_of(each.name), place)
    return {f"{name}.md": f"{MADE}\n\n{text.strip()}\n" for name, text in found.items()}


def main(folder: Path) -> None:
    for name, text in written().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else TARGET)
