"""The commands and what each reads from the command line."""

from __future__ import annotations

from functools import partial

import click

from poskernel_core import analyses
from poskernel_core.analyses.definitions import method_of
from poskernel_core.cli import actions
from poskernel_core.cli.grammar import Command, Commands, Model, Option
from poskernel_core.cli.options import (
    FILE,
    ledger_options,
    precompute_options,
    revision_option,
    show_options,
)

__all__ = ["PROGRAM"]

HELP = ["--help", "-h"]


class Show(Commands):
    """``show``: a command for each analysis, made when it is asked for."""

    noun = "analysis"
    heading = "Analyses"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all analyses."""
        return list(analyses.ANALYSES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of an analysis, or None where there is no such analysis."""
        if cmd_name not in analyses.ANALYSES:
            return None
        method = method_of(cmd_name)
        return Command(
            cmd_name,
            params=show_options(analyses.find(cmd_name)),
            callback=partial(actions.show, cmd_name),
            help=f"{method.title}\n\n{method.summary}".replace("`", ""),
            short_help=method.title,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; options may stand before the name of the analysis."""
        return super().parse_args(ctx, _name_first(args))


def _name_first(args: list[str]) -> list[str]:
    """Return the arguments of ``show`` with the name of the analysis first.

    An option that some analysis has, and that is no flag, takes the next argument.
    """
    if not args or not args[0].startswith("-"):
        return args
    valued, at = _valued(), 0
    while at < len(args) and args[at].startswith("-"):
        at += 1 + (args[at] in valued)
    if at < len(args):
        return [args[at], *args[:at], *args[at + 1 :]]
    return [each for each in args if each in HELP]


def _valued() -> set[str]:
    """Return every option of any analysis that takes a value."""
    return {
        name
        for analysis in analyses.ANALYSES.values()
        for each in show_options(analysis)
        if isinstance(each, Option) and not each.is_flag
        for name in each.opts
    }


def _file() -> click.Argument:
    return click.Argument(["file"], type=FILE, help="the archive")


PROGRAM = Commands(
    "poskernel",
    context_settings={"help_option_names": HELP, "max_content_width": 100},
    options_metavar=None,
    help="See, measure and compare how transformers use position.",
    epilog="Exit codes: 0 done, 2 bad request (one sentence on standard error), 1 anything else.",
    commands=[
        Command(
            "models",
            callback=actions.list_models,
            help="List the models, with what is cached.",
        ),
        Command(
            "precompute",
            params=precompute_options(),
            callback=actions.precompute,
            help="Run the pass and compute the standard results.",
        ),
        Show(
            "show",
            options_metavar=None,
            subcommand_metavar="ANALYSIS MODEL [OPTIONS]",
            help="Print or write the result of one analysis.",
            epilog="Every analysis has options of its own: poskernel show ANALYSIS --help.",
        ),
        Command(
            "reproduce",
            params=ledger_options(),
            callback=actions.reproduce,
            help="Compute the figures that were published for a model, and compare.",
        ),
        Command(
            "export",
            params=[Model(), _file(), revision_option()],
            callback=actions.export_results,
            help="Write all results of a model as one file.",
        ),
        Command(
            "import",
            params=[_file()],
            callback=actions.import_results,
            help="Read all results of a model from one file.",
        ),
    ],
)
"""The command line."""
