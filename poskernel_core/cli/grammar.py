"""Parsing and help of commands: options in sections, one sentence for every mistake."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from poskernel_core.common.settings import settings

RESULT = "The result"
MAX_SHOWN = 40
"""Characters of a wrong value that are repeated in the error message."""


class Option(click.Option):
    """An option with its default and bounds, listed in a section of the help."""

    def __init__(self, names: Sequence[str], section: str = RESULT, **more: Any) -> None:
        super().__init__(names, **{"show_default": True} | more)
        self.section = section

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the typed text.

        Raises:
            click.BadOptionUsage: the value is missing, so the next option was taken as the value.
        """
        if isinstance(value, str) and any(value in param.opts for param in ctx.command.params):
            raise click.BadOptionUsage(
                self.opts[0], f"Option {self.opts[0]!r} requires an argument, got {value!r}.", ctx
            )
        return super().type_cast_value(ctx, value)


def option(*names: str, section: str = RESULT, **more: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option to a section of the command's help."""
    return click.option(*names, cls=Option, section=section, **more)


class Command(click.Command):
    """A command whose help lists its options in sections, in order of definition."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options section by section; ``--help`` comes last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                sections.setdefault(getattr(param, "section", "Help"), []).append(record)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            click.UsageError: invalid arguments; the error knows the command.
        """
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = ctx
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Check the environment variables, then run the command; ``--help`` skips the check."""
        settings()
        return super().invoke(ctx)


class Commands(click.Group):
    """A group whose commands are listed in order of definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)


def reader(expected: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return an option type that parses with ``read`` and turns a ValueError into a message."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(f"expected {expected}, got {text[:MAX_SHOWN]!r}.") from error

    return convert


def sentence(error: click.UsageError) -> str:
    """Return a usage error as one sentence that refers to the help."""
    path = error.ctx.command_path if error.ctx else "poskernel"
    return f"{' '.join(error.format_message().split()).removesuffix('.')} (see '{path} --help')."
