"""How commands are read and explained: options in sections, one sentence for every mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from poskernel_core.common.renamed import OPTIONS, told
from poskernel_core.common.settings import settings

__all__ = ["RESULT", "Command", "Commands", "Option", "option", "reader", "sentence"]

RESULT = "The result"
MAX_SHOWN = 40
"""Characters of a wrong value that are repeated to whoever typed it."""


class Option(click.Option):
    """An option, in a section of its command's help, with its default and bounds."""

    def __init__(self, names: Sequence[str], section: str = RESULT, **more: Any) -> None:
        super().__init__(names, **{"show_default": True} | more)
        self.section = section

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return what was typed as a value.

        Raises:
            click.BadOptionUsage: the value was forgotten, and the next option is in its place.
        """
        if isinstance(value, str) and any(value in each.opts for each in ctx.command.params):
            raise click.BadOptionUsage(
                self.opts[0], f"Option {self.opts[0]!r} requires an argument, got {value!r}.", ctx
            )
        return super().type_cast_value(ctx, value)


def option(*names: str, section: str = RESULT, **more: Any) -> Callable[[Any], Any]:
    """Return what gives a command an option in a section of its help."""
    return click.option(*names, cls=Option, section=section, **more)


class Command(click.Command):
    """A command whose help has its options in sections, in order of definition."""

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
        settings()
        return super().invoke(ctx)


class Commands(click.Group):
    """Commands, listed in order of definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(self.commands)


def reader(expected: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of option: what ``read`` makes of a text; a ValueError is explained."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(f"expected {expected}, got {text[:MAX_SHOWN]!r}.") from error

    return convert


def sentence(error: click.UsageError) -> str:
    """Return what is wrong with a command line as one sentence, with where to read on."""
    said = error.format_message()
    if isinstance(error, click.NoSuchOption) and error.ctx:
        shown = {name for each in error.ctx.command.params for name in each.opts}
        said = told(error.option_name, OPTIONS, shown) or said
    path = error.ctx.command_path if error.ctx else "poskernel"
    return f"{' '.join(said.split()).removesuffix('.')} (see '{path} --help')."
