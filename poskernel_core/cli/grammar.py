"""How commands are read and explained: options in sections, one sentence for every mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import click

from poskernel_core.common.renamed import OPTIONS, QUESTIONS, told
from poskernel_core.common.settings import check_settings

__all__ = ["Command", "Commands", "Model", "Option", "Value", "either", "sentence"]

LONGEST = 40
"""Characters of a wrong value that are repeated to whoever typed it."""


class Value(click.ParamType[Any, str]):
    """What an option takes: how it is described, and what reads it.

    Args:
        expected: what is expected, as it reads after "expected".
        read: returns the value of a text.

    Raises:
        click.BadParameter: ``read`` raised a ValueError, or the text is another option's name.
    """

    name = "value"

    def __init__(self, expected: str, read: Callable[[str], Any]) -> None:
        self.expected = expected
        self._read = read

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text."""
        forgotten = ctx is not None and any(value in each.opts for each in ctx.command.params)
        try:
            if not forgotten:
                return self._read(value)
        except ValueError:
            pass
        self.fail(f"expected {self.expected}, got {value[:LONGEST]!r}", param, ctx)


class Option(click.Option):
    """An option, in a section of its command's help.

    Args:
        names: as it is typed (the first is shown, others are read too), and last its name in
            Python.
        section: heading that it stands under.
        what: what it is, without a full stop.
        facts: default and bounds, shown after it in brackets.
        more: as ``click.Option`` takes them.
    """

    def __init__(
        self, *names: str, section: str, what: str, facts: Sequence[str] = (), **more: Any
    ) -> None:
        known = [fact for fact in facts if fact]
        after = f"  [{'; '.join(known)}]" if known else ""
        super().__init__(names, help=f"{what}{after}", **more)
        self.section = section
        self.what = what

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the two columns of the help."""
        taken = "" if self.is_flag else f" {self.make_metavar(ctx)}"
        return f"{self.opts[0]}{taken}", self.help or ""


class Model(click.Argument):
    """The argument that names a model."""

    def __init__(self) -> None:
        super().__init__(["model"], help="bundled name, hub name, directory or GGUF file")


class Command(click.Command):
    """A command whose help has its options in sections, as they come."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section; how to get help is the last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                sections.setdefault(getattr(param, "section", "Help"), []).append(record)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            click.UsageError: they make no sense; it knows which command they were for.
        """
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = ctx
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; help is given whatever the environment variables hold.

        Raises:
            BadRequest: a variable whose value makes no sense.
        """
        check_settings()
        return super().invoke(ctx)


class Commands(click.Group):
    """Commands, listed in their order; ``noun`` is what one of them is called."""

    noun: ClassVar[str] = "command"
    heading: ClassVar[str] = "Commands"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments up to the command's name.

        Raises:
            click.UsageError: there are none.
        """
        if not args:
            ctx.fail(f"The {self.noun} is required: one of {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section(self.heading):
            formatter.write_dl(
                [(name, each.short_help or each.help or "") for name, each in found if each]
            )


def either(words: Sequence[str]) -> str:
    """Return ``a, b or c``."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def sentence(error: click.UsageError) -> str:
    """Return what is wrong with a command line as one sentence, with what is offered instead."""
    path = error.ctx.command_path if error.ctx else "poskernel"
    return f"{_complaint(error, path).removesuffix('.')} (see '{path} --help')."


def _misused(name: str, params: Sequence[click.Parameter]) -> str:
    """Return what is wrong with an option that lacks its value, or has one and is a flag."""
    kinds = [each.type for each in params if name in each.opts]
    if kinds and isinstance(kinds[0], Value):
        return f"Option {name}: expected {kinds[0].expected}, got nothing"
    return f"Option {name}: expected no value, got one"


def _complaint(error: click.UsageError, path: str) -> str:
    match error:
        case click.NoSuchOption(ctx=click.Context() as ctx):
            shown = [p.opts[0] for p in ctx.command.get_params(ctx) if isinstance(p, click.Option)]
            name = error.option_name[:LONGEST]
            return (
                told(name, OPTIONS, shown)
                or f"No option {name!r} of '{path}': expected one of {', '.join(shown)}"
            )
        case click.exceptions.NoSuchCommand(ctx=click.Context(command=Commands() as group) as ctx):
            name, names = error.command_name[:LONGEST], ", ".join(group.list_commands(ctx))
            return told(name, QUESTIONS) or f"No {group.noun} {name!r}: expected one of {names}"
        case click.BadOptionUsage(ctx=click.Context() as ctx):
            return _misused(error.option_name, ctx.command.params)
        case click.MissingParameter(param=Option() as option):
            return f"Option {option.opts[0]} is required: {option.what}"
        case click.MissingParameter(param=click.Argument() as argument):
            return f"{argument.human_readable_name} is required: {argument.help}"
        case click.BadParameter(param=click.Option() as option):
            return f"Option {option.opts[0]}: {error.message}"
    return error.format_message()
