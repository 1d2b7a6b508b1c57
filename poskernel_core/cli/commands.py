"""The commands and what each reads from the command line."""

from __future__ import annotations

from functools import partial

import click
from click.core import ParameterSource

from poskernel_core import __version__, analyses
from poskernel_core.analyses.definitions import method_of
from poskernel_core.cli import actions, exporting, machines
from poskernel_core.cli.grammar import Command, Commands, Option
from poskernel_core.cli.options import (
    FILE,
    FOLDER_RUN,
    FOLDERS,
    export_options,
    ledger_options,
    merge_options,
    precompute_options,
    show_options,
)
from poskernel_core.cli.serving import serve, serve_options

__all__ = ["PROGRAM"]

HELP = ["--help", "-h"]
WELCOME = f"""\
PosKernel {__version__}: how a transformer's attention heads use position.

  poskernel serve                 open the dashboard: all heads of a model, in a browser
  poskernel show etc demo-gpt2    print the answer to one question about a model
  poskernel precompute MODEL      compute what the pages of a model show first

All commands: poskernel --help"""


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


class Export(Command):
    """``export``: an archive of all runs, or a folder about one of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            click.UsageError: nothing or several are asked for, or an archive of one run.
        """
        rest = super().parse_args(ctx, args)
        file = next(each for each in self.params if each.name == "file")
        wanted = [name for name in ("file", *FOLDERS) if ctx.params[name] is not None]
        if not wanted:
            raise click.MissingParameter(ctx=ctx, param=file)
        if len(wanted) > 1:
            ctx.fail(f"Give one of FILE, {', '.join(map(_folder_option, FOLDERS))}, not several")
        if ctx.params["view"] and wanted != ["file"]:
            ctx.fail("--view is for FILE: a folder is one already")
        for each in self.params:
            of_run = isinstance(each, Option) and each.section == FOLDER_RUN
            given = ctx.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
            if of_run and given and wanted == ["file"]:
                ctx.fail(f"{each.opts[0]} is for a folder: an archive holds all runs of a model")
        return rest


def _folder_option(name: str) -> str:
    return f"--{name.replace('_', '-')} FOLDER"


class Program(Commands):
    """``poskernel``: without a command it says which three matter."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments up to the command's name."""
        if not args:
            click.echo(WELCOME)
            ctx.exit()
        return super().parse_args(ctx, args)


def _file() -> click.Argument:
    return click.Argument(["file"], type=FILE, help="the archive")


PROGRAM = Program(
    "poskernel",
    context_settings={"help_option_names": HELP, "max_content_width": 100},
    options_metavar=None,
    help="See, measure and compare how transformers use position.",
    epilog="Exit codes: 0 done, 2 bad request (one sentence on standard error), 1 anything else.",
    commands=[
        Command(
            "serve",
            params=serve_options(),
            callback=serve,
            help="Serve the dashboard: every head of a model, in a browser.",
        ),
        Command(
            "models",
            callback=actions.list_models,
            help="List the models, with what is cached.",
        ),
        Command(
            "precompute",
            params=precompute_options(),
            callback=machines.precompute,
            help="Run the pass and compute the standard results.",
        ),
        Command(
            "merge",
            params=merge_options(),
            callback=machines.merge_shards,
            help="Put shards of 'precompute --shard' together; compute the standard results.",
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
        Export(
            "export",
            params=export_options(),
            callback=exporting.export_results,
            options_metavar=None,
            help="Write all results of a model as one file, or those of a run as a folder.",
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
click.version_option(__version__, message="%(prog)s %(version)s")(PROGRAM)
