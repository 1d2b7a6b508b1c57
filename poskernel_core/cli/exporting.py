"""``export`` and ``import``: a model's results as one file, or those of one run as a folder."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from poskernel_core.analyses import ANALYSES, find
from poskernel_core.analyses.headvis.tree import folder_of, tree
from poskernel_core.api import build_request, request_about
from poskernel_core.cli.grammar import Command, option
from poskernel_core.cli.options import FILE, Run, RunCommand
from poskernel_core.cli.show import answer, check_windows
from poskernel_core.cli.terminal import status
from poskernel_core.common.atomic_write import check_folder, check_ours, write_tree
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.export.gallery import GalleryRun, gallery
from poskernel_core.export.hub_card import hub_card
from poskernel_core.models import catalog
from poskernel_core.storage.archive import export_model, import_archive
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import export_view

HEADVIS_QUESTIONS = ("headvis", "head-examples", "head-measures")
"""The questions whose results make up the HeadVis files, in the order of ``tree``'s arguments."""

SHOWN = ("kernel", "previous-token", "sinks")
"""Results that a gallery shows on a head's page, in addition to the head's verdict."""

TOLD = ("etc", "kernel", "previous-token", "entropy", "sinks", "profile")
"""Results that go into a data set for the hub, in addition to all measures."""

MARKS = {
    "gallery": ("index.html", b'content="PosKernel '),
    "hub_card": ("README.md", b"computed by PosKernel "),
}
"""Per kind of folder: the file that is written first, and a text in that file that marks the folder
as ours."""

Files = Iterable[tuple[str, Any]]


def _folder(kind: str, help: str) -> Callable[[Any], Any]:
    return option(f"--{kind.replace('_', '-')}", type=FILE, metavar="FOLDER", help=help)


@click.command("export", cls=RunCommand, options_metavar="[OPTIONS]")
@click.argument("file", type=FILE, required=False)
@_folder("gallery", "write a static site: the grid, a page for each head, no server")
@_folder("hub_card", "write a data set for the hub: arrays, a table and a card")
@_folder("headvis", "write the files that HeadVis shows heads from")
@option(
    "--view", is_flag=True,
    help="write the results alone, small, for a server without the weights (POSKERNEL_MODELS, "
    "serve --model)",
)  # fmt: skip
def export_results(run: Run, file: Path | None, view: bool, **folders: Path | None) -> None:
    """Write a model's results as one file, or a run's as a folder.

    An archive holds all runs of a model, so that the options of a run are for folders.
    """
    context = click.get_current_context()
    wanted = [(kind, folder) for kind, folder in folders.items() if folder is not None]
    if len(wanted) + (file is not None) != 1:
        context.fail("Give one of FILE, --gallery, --hub-card and --headvis")
    if file is not None:
        for name in Run.__annotations__.keys() - {"model", "revision"}:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = f"--{name.replace('_', '-')}"
                context.fail(f"{option} is for a folder: an archive holds all runs of a model")
        written = export_view if view else export_model
        count = written(Store(), catalog.locate(run.model, run.revision), file)
        status(f"{counted(count, 'entry', 'entries')} of {run.model} written to {file}")
        return
    if view:
        context.fail("--view is for FILE: a folder is one already")
    ((kind, folder),) = wanted
    check_folder(folder)
    if kind in MARKS:
        check_ours(folder, *MARKS[kind])
    with closing(run.engine()) as engine:
        folder, files = _made(kind, engine, run, folder)
    count = write_tree(folder, files)
    status(f"{counted(count, 'file')} of {run.model} written to {folder}")


@click.command("import", cls=Command)
@click.argument("file", type=FILE)
def import_results(file: Path) -> None:
    """Read all results of a model from one file."""
    model, count = import_archive(Store(), file)
    status(f"{counted(count, 'entry', 'entries')} of {model} imported")


def _made(kind: str, engine: Engine, run: Run, folder: Path) -> tuple[Path, Files]:
    if kind == "headvis":
        results = list(_answers(engine, run, HEADVIS_QUESTIONS).values())
        return folder.joinpath(*folder_of(results[0])), tree(*results)
    # all measures and verdicts; those on request only if stored
    request, _ = build_request("verdicts", run.model, **run.fields())
    missing = [name for name in engine.missing(request) if find(name).on_request]
    params = request.params | {"leave_out": ",".join(missing)}
    requests = {"verdicts": request.model_copy(update={"params": params})}
    verdicts = _all(engine, run, requests)["verdicts"]
    if kind == "hub_card":
        answers = _answers(engine, run, TOLD)
        titled = [(find(name).title, result) for name, result in answers.items()]
        return folder, hub_card([*titled, (find("verdicts").title, verdicts)], verdicts)
    answers = _answers(engine, run, SHOWN)
    measures = {
        measure.title: measure for question in ANALYSES.values() for measure in question.measures
    }
    query = int(answers["kernel"].params["query"])
    kernel, profile, sinks = (answers[name] for name in SHOWN)
    return folder, gallery(GalleryRun(verdicts, kernel, profile, sinks, measures, query))


def _answers(engine: Engine, run: Run, names: Iterable[str]) -> dict[str, Result]:
    described = describe_run(run.model, **run.fields())
    requests = {name: request_about(described, name, {}) for name in names}
    return _all(engine, run, requests)


def _all(engine: Engine, run: Run, requests: Mapping[str, Request]) -> dict[str, Result]:
    for request in requests.values():
        if engine.cached(request) is None:
            engine.submit(request)
    results = {name: answer(engine, request) for name, request in requests.items()}
    check_windows(next(iter(results.values())), run)
    return results
