"""``show`` and ``reproduce``: print the result of a question; compare with published figures."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from poskernel_core import analyses
from poskernel_core.analyses.definitions import method_of
from poskernel_core.analyses.views import finding_of
from poskernel_core.api import build_request, looked_at
from poskernel_core.cli.grammar import Command, Commands, Option, option
from poskernel_core.cli.options import (
    FILE,
    PREFIX,
    Run,
    RunCommand,
    connected,
    question_options,
    server_option,
)
from poskernel_core.cli.reports import ledger_text, summary
from poskernel_core.cli.terminal import say, show_progress, status
from poskernel_core.client import Server
from poskernel_core.common.atomic_write import check_target, write_file
from poskernel_core.common.errors import BadRequest, TooLittleText
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job
from poskernel_core.export.continuation import continuation
from poskernel_core.export.files import stage_json, to_html, to_json, to_npz
from poskernel_core.export.printing import WIDTHS, picture_kind, save_picture
from poskernel_core.export.schema import schema
from poskernel_core.ledger.published import BUNDLED_FIGURES, figures_of, known_models
from poskernel_core.ledger.reproduce import compare, published_name
from poskernel_core.models import catalog


class Show(Commands):
    """``show``: a group with one command per analysis, created on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all analyses."""
        return list(analyses.ANALYSES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Command:
        """Return the command of an analysis."""
        question, method = analyses.find(cmd_name), method_of(cmd_name)

        def file(name: str, help: str) -> Option:
            return Option([name], type=FILE, metavar="FILE", help=help)

        outputs = [
            Option(["--json", "as_json"], is_flag=True, help="print JSON"),
            Option(["--live"], is_flag=True, help="print results while they form"),
            file("--npz", help="write arrays"),
            file("--html", help="write a stand-alone figure"),
            file(
                "--picture",
                help="write the figure for a paper, as .svg or .png (drawn by Chrome or Chromium)",
            ),
            Option(
                ["--width"],
                type=click.Choice(WIDTHS),
                default=WIDTHS[0],
                help="width of --picture in mm: one column, or two",
            ),
        ]
        return RunCommand(
            cmd_name,
            params=[*question_options(question), *outputs, server_option()],
            callback=partial(show, cmd_name),
            help=f"{method.title}\n\n{method.summary}".replace("`", ""),
            short_help=method.title,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; options may precede the name of the analysis.

        Raises:
            click.UsageError: no analysis is named.
        """
        name = next((arg for arg in args if arg in analyses.ANALYSES), None)
        if name is not None:
            args = [name, *args[: args.index(name)], *args[args.index(name) + 1 :]]
        elif {"--help", "-h"} & {*args}:
            args = ["--help"]
        elif not args or args[0].startswith("-"):
            ctx.fail(f"The analysis is required: one of {', '.join(analyses.ANALYSES)}")
        return super().parse_args(ctx, args)


def show(
    analysis: str,
    run: Run,
    npz: Path | None,
    html: Path | None,
    picture: Path | None,
    width: int,
    as_json: bool,
    live: bool,
    server: str | None = None,
    query: int | None = None,
    head: str | None = None,
    **own: Any,
) -> None:
    """Print or write the result of an analysis; its own parameters' names start with ``PREFIX``."""
    params = {name.removeprefix(PREFIX): value for name, value in own.items() if value is not None}
    for path in filter(None, (npz, html, picture)):  # before anything is computed
        check_target(path)
    if picture is not None:
        picture_kind(picture)
    options = {"head": head, "query": query, "params": params, **run.fields()}
    there = connected(server)
    results = _computed if there is None else partial(_from_server, there)
    for result, windows in results(analysis, run, options, live):
        if live:
            _say_stage(result, windows, as_json=as_json)
    check_windows(result, run)
    if npz is not None:
        write_file(npz, to_npz(result))
    if html is not None:
        from poskernel_core.analyses.views import figure_of

        code = continuation(result)
        write_file(html, to_html([figure_of(result)], result, result.analysis, code=code))
    if picture is not None:
        save_picture(result, picture, width)
    if as_json and not live:
        print(to_json(result))
    elif as_json:
        pass  # the last stage was the result
    elif written := [str(file) for file in (npz, html, picture) if file]:
        say(f"Written to {' and '.join(written)}.")
    else:
        say(summary(result), lines=True)


def _computed(
    analysis: str, run: Run, options: Mapping[str, Any], live: bool
) -> Iterator[tuple[Result, int]]:
    """Yield a result of this machine with its windows; before it, if ``live``, its stages."""
    with closing(run.engine()) as engine:
        request, chosen = build_request(analysis, run.model, **options)
        for result in watched(engine, request, looked_at(request, chosen) if live else None):
            yield result.select(**chosen), request.run.windows


def _from_server(
    server: Server, analysis: str, run: Run, options: Mapping[str, Any], live: bool
) -> Iterator[tuple[Result, int]]:
    """Yield a result of a server, likewise; its own device computes."""
    if run.device is not None or run.batch is not None:
        raise BadRequest("A server chooses device and batch itself: leave both out.")
    try:
        if live:
            yield from server.stages(analysis, run.model, **options)
        else:
            yield server.show(analysis, run.model, tell=lambda job: _tell(**job), **options), 0
    finally:
        show_progress("")


@click.command("schema", cls=Command)
@click.argument("analysis", required=False)
@option("--live", is_flag=True, help="the form of each line of 'show --live --json'")
@option("--server", metavar="URL", help="ask the dashboard at this address")
def print_schema(analysis: str | None, live: bool, server: str | None) -> None:
    """Print the JSON Schema of what 'show --json' prints.

    Without ANALYSIS, print those of all analyses, by name.
    """
    there = connected(server)
    schema_of = schema if there is None else there.schema
    every = analyses.ANALYSES if there is None else [entry["name"] for entry in there.questions()]
    schemas = {name: schema_of(name, live=live) for name in ([analysis] if analysis else every)}
    print(json.dumps(schemas[analysis] if analysis else schemas, indent=1))


def answer(engine: Engine, request: Request) -> Result:
    """Return a result, showing progress on a terminal."""
    *_, result = watched(engine, request, None)
    return result


def watched(engine: Engine, request: Request, query: int | None) -> Iterator[Result]:
    """Yield a result while it forms, showing progress on a terminal."""

    def tell(job: Job) -> None:
        _tell(job.note, job.done, job.total, job.seconds_left())

    try:
        yield from engine.watch(request, query, tell=tell)
    finally:
        show_progress("")


def _tell(note: str, done: int, total: int, seconds_left: float | None, **_: Any) -> None:
    """Show how far a job is, as in "120 of 500, 35 s left"."""
    left = "" if seconds_left is None else f", {seconds_left:.0f} s left"
    show_progress(f"{note} {f'{done} of {total}' if total else ''}{left}")


def _say_stage(result: Result, of: int, *, as_json: bool) -> None:
    windows = result.provenance["windows"]
    if as_json:
        print(stage_json(result, of), flush=True)
    else:
        show_progress("")
        status(f"{windows:,} of {counted(f'{of:,}', 'window')}: {finding_of(result)}")


def check_windows(result: Result, run: Run) -> None:
    """Check that a result has as many windows as requested; a stored result may have fewer.

    For a result of several runs, only the first run is checked.
    """
    got, context = (
        int(str(result.provenance[name]).split(", ")[0]) for name in ("windows", "context")
    )
    requested = result.provenance[
        "windows_asked"
    ]  # may be fewer if the analysis sets its own number
    if run.until is None and run.windows is not None and got < run.windows == requested:
        raise TooLittleText(
            f"Corpus {run.corpus!r} gives {counted(got, 'window')} of {counted(context, 'token')}, "
            f"{run.windows} were asked for: ask for fewer (--windows {got})."
        )


@click.command(cls=RunCommand)
@option(
    "--as", "published_as", metavar="NAME",
    help="whose figures: for a local copy of a model that was published under another name",
)  # fmt: skip
@option("--figures", type=FILE, metavar="FILE", help="published figures of your own (JSON)")
@option("--json", "as_json", is_flag=True, help="print JSON")
def reproduce(run: Run, published_as: str | None, figures: Path | None, as_json: bool) -> None:
    """Compute a model's published figures, and compare."""
    file = figures or BUNDLED_FIGURES
    name = published_as or published_name(run.model)
    if published_as and not figures_of(name, file):
        raise BadRequest(
            f"No figures were published for {name!r}; there are some of "
            f"{', '.join(known_models(file))}."
        )
    catalog.locate(run.model, run.revision)
    lines = []
    with closing(run.engine()) as engine:
        answered = partial(answer, engine)
        for line in compare(run.model, figures_of(name, file), answered, **run.fields()):
            status(f"{line.figure.id}: {line.verdict}")
            lines.append(line)
    if as_json:
        json.dump([line.as_json() for line in lines], sys.stdout)
        print()
    else:
        say(ledger_text(name, lines, known_models(file)), lines=True)
