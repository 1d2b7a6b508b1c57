"""Options that describe a run, and options generated from the parameters of a question."""

import re
import typing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import click
from pydantic.fields import FieldInfo

from poskernel_core.analyses import Question
from poskernel_core.cli.grammar import Command, Option, reader
from poskernel_core.client import Server, connect
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import (
    DEFAULT_CONTEXT,
    DEFAULT_QUERY,
    DEFAULT_TEXTS,
    DEVICE,
    MIN_PATTERNS,
    CorpusSpec,
    Dtype,
    Execution,
    Until,
)
from poskernel_core.engine.engine import Engine
from poskernel_core.storage.store import Store

FILE = click.Path(path_type=Path)
PREFIX = "param_"
"""Prefix of the Python names of an analysis' own options; it avoids clashes with a run's
options."""

OWN_SECTION = "Options of this analysis"
RUN_SECTION = "The run"
MAX_NUMBER = 10**9
"""The largest number that an option takes; larger ones are refused before any text is read."""
METAVARS = {int: "N", float: "X", str: "TEXT"}
NAMED = {"head": "HEAD", "pairs": "FILE"}
"""What parameters of some names are, in place of their types."""


@dataclass(frozen=True)
class Run:
    """The values of a run's options, by their Python names."""

    model: str
    revision: str | None
    corpus: str
    corpus_item: str | None
    corpus_revision: str | None
    windows: int | None
    until: Until | None
    pattern_windows: int | None
    context: int | None
    no_start_token: bool
    seed: int
    dtype: Dtype
    device: str | None
    batch: int | None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a run, as ``build_request`` takes them."""
        names = ("revision", "context", "windows", "until", "pattern_windows", "seed", "dtype")
        return {name: getattr(self, name) for name in names} | {
            "corpus": CorpusSpec(
                name=self.corpus, item=self.corpus_item, revision=self.corpus_revision
            ),
            "start_token": not self.no_start_token,
        }

    def execution(self) -> Execution:
        """Return device and batch size of the run."""
        return Execution(
            device=self.device or settings().device,
            batch=self.batch,
            all_windows=self.windows is not None,
        )

    def engine(self) -> Engine:
        """Return an engine over the default store with this execution."""
        return Engine(Store(), self.execution())


def server_option() -> Option:
    """Return the option that names a server to ask."""
    return Option(
        ["--server"], "The server", metavar="URL", help="ask the dashboard at this address in "
        "place of this machine; the variable POSKERNEL_SERVER if not given",
    )  # fmt: skip


def connected(address: str | None) -> Server | None:
    """Return the server to ask, if one is named."""
    return connect(address) if address or settings().server else None


class RunCommand(Command):
    """A command about a run. It adds the run's options and passes them on as one :class:`Run`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params = [click.Argument(["model"]), *self.params, *_run_options()]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        ctx.params["run"] = Run(**{name: ctx.params.pop(name) for name in Run.__annotations__})
        return super().invoke(ctx)


def _name_of_device(text: str) -> str:
    if not re.fullmatch(DEVICE, text):
        raise ValueError
    return text


device = reader("a device such as auto, cpu, cuda or cuda:1", _name_of_device)


def _run_options() -> list[Option]:
    def option(name: str, help: str, **more: Any) -> Option:
        return Option([name], RUN_SECTION, help=help, **more)

    def number(name: str, help: str, least: int = 1, **more: Any) -> Option:
        return option(name, help, type=click.IntRange(least, MAX_NUMBER), metavar="N", **more)

    return [
        option("--revision", "hub revision or training checkpoint"),
        option("--corpus", "name, or .txt, .jsonl, .parquet or .npy file", default="sample"),
        option("--corpus-item", "one named text of the corpus"),
        option("--corpus-revision", "revision of a hub corpus"),
        number("--windows", f"windows of text; up to {DEFAULT_TEXTS:,} if not given"),
        option(
            "--until", "end earlier: when every kind is resolved, or every ETC known to 5 %",
            type=click.Choice(typing.get_args(Until)),
        ),
        number(
            "--pattern-windows", "first windows whose attention is formed; all if not given, fewer "
            "are faster", MIN_PATTERNS,
        ),
        number("--context", f"tokens per window; up to {DEFAULT_CONTEXT:,} if not given"),
        option("--no-start-token", "no start token first", is_flag=True),
        number("--seed", "order of documents, random tokens", 0, default=0),
        option(
            "--dtype", "precision of the pass", default="float32",
            type=click.Choice(typing.get_args(Dtype)),
        ),
        option(
            "--device", "auto, cpu, cuda, cuda:1 or mps; the variable POSKERNEL_DEVICE if not "
            "given, else auto", type=device, metavar="TEXT",
        ),
        number("--batch", "windows per forward pass; as many as fit well if not given"),
    ]  # fmt: skip


def question_options(question: Question[Any]) -> list[click.Parameter]:
    """Return the options of an analysis: its own parameters, and selections from its result."""
    own = [_own_option(name, field) for name, field in question.params.model_fields.items()]
    selectable = question.selectable()
    if "query" in selectable:
        help = "one query position; all recorded ones if not given, others need a pass"
        own.append(Option(["--query"], type=int, metavar="N", help=help))
    if "head" in selectable:
        own.append(Option(["--head"], metavar="HEAD", help="one head, such as L0H3 (default: all)"))
    return [*own]


def _own_option(name: str, field: FieldInfo) -> Option:
    option, given = partial(Option, section=OWN_SECTION), field.default
    if name == "query":  # its upper limit depends on the context and is checked later
        help = f"{field.description}; {DEFAULT_QUERY} if not given, or the last that can be read"
        return option(["--query"], type=int, metavar="N", help=help)
    kind: Any = field.annotation
    if NoneType in typing.get_args(kind):  # `int | None`
        kind = typing.get_args(kind)[0]
    return option(
        [f"--{name.replace('_', '-')}", name if name == "head" else f"{PREFIX}{name}"],
        type=_type(kind, field),
        metavar=NAMED.get(name, METAVARS.get(kind)),
        help=field.description,
        **({"required": True} if field.is_required() else {"default": given}),
        show_default=repr(given) if str(given).startswith(" ") else given != "",
    )


def _type(kind: Any, field: FieldInfo) -> "click.ParamType[Any]":
    if words := typing.get_args(kind):
        return click.Choice(words)
    names = ("ge", "gt", "le", "lt")
    limits = {
        n: getattr(constraint, n)
        for constraint in field.metadata
        for n in names
        if hasattr(constraint, n)
    }
    least, most = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if kind is int:
        return click.IntRange(least, MAX_NUMBER if most is None else most)
    if kind is float:
        return click.FloatRange(least, most, min_open="gt" in limits, max_open="lt" in limits)
    return click.BOOL if kind is bool else click.STRING
