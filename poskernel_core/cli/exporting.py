"""``export``: all results of a model as one file, or those of one run as a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from poskernel_core.analyses import ANALYSES, Experiment, find
from poskernel_core.analyses.headvis.tree import folder_of, tree
from poskernel_core.api import build_request
from poskernel_core.cli.actions import answer, check_windows, engine_of
from poskernel_core.cli.options import FOLDERS, Run
from poskernel_core.cli.terminal import complain
from poskernel_core.common.atomic_write import check_folder, check_ours, write_tree
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import Engine
from poskernel_core.export.gallery import Shown, gallery
from poskernel_core.export.hub_card import hub_card
from poskernel_core.models import catalog
from poskernel_core.storage.archive import export_model
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import export_view

__all__ = ["export_results"]

HEADVIS_QUESTIONS = ("headvis", "head-examples", "head-measures")
"""What the files of HeadVis are made of, in the order in which they are put together."""

SHOWN = ("kernel", "previous-token", "sinks")
"""What a head's page in a gallery shows beside its verdict."""

TOLD = ("etc", "kernel", "previous-token", "entropy", "sinks", "profile")
"""What a data set for the hub holds beside all measures."""

MARKS = {
    "gallery": ("index.html", b'content="PosKernel '),
    "hub_card": ("README.md", b"computed by PosKernel "),
}
"""Of a folder that may be overwritten: the file that is written first, and what is in it."""

Files = Iterable[tuple[str, Any]]


def export_results(model: str, file: Path | None, view: bool, **given: Any) -> None:
    """Write all that is stored of a model into one file, or a folder about one of its runs.

    Args:
        model: its name.
        file: where all that is stored goes; None where a folder is asked for.
        view: whether it is results alone, to be shown by a server that has not the weights.
        given: the folders by the names in ``FOLDERS``, and the other fields of :class:`Run`.

    Raises:
        PosKernelError: what went wrong, in one sentence.
    """
    folders = {name: given.pop(name) for name in FOLDERS}
    if file is not None:
        written = export_view if view else export_model
        count = written(Store(), catalog.locate(model, given["revision"]), file)
        complain(f"{counted(count, 'entry', 'entries')} of {model} written to {file}")
        return
    (kind, folder), *_ = ((name, at) for name, at in folders.items() if at is not None)
    run = Run(model=model, **given)
    check_folder(folder)
    if kind in MARKS:
        check_ours(folder, *MARKS[kind])
    engine = engine_of(run)
    try:
        folder, files = _made(kind, engine, run, folder)
    finally:
        engine.close()
    count = write_tree(folder, files)
    complain(f"{counted(count, 'file')} of {model} written to {folder}")


def _made(kind: str, engine: Engine, run: Run, folder: Path) -> tuple[Path, Files]:
    """Return where a folder's files go, and these."""
    if kind == "headvis":
        found = list(_answers(engine, run, HEADVIS_QUESTIONS).values())
        return folder.joinpath(*folder_of(found[0])), tree(*found)
    verdicts = _verdicts(engine, run)
    if kind == "hub_card":
        answers = _answers(engine, run, TOLD)
        told = [(find(name).title, found) for name, found in answers.items()]
        return folder, hub_card([*told, (find("verdicts").title, verdicts)], verdicts)
    answers = _answers(engine, run, SHOWN)
    measures = {each.title: each for question in ANALYSES.values() for each in question.measures}
    query = int(answers["kernel"].params["query"])
    kernel, profile, sinks = (answers[name] for name in SHOWN)
    return folder, gallery(Shown(verdicts, kernel, profile, sinks, measures, query))


def _answers(engine: Engine, run: Run, names: Iterable[str]) -> dict[str, Result]:
    """Return the answers to questions, all asked at once."""
    asked = {name: build_request(name, run.model, **run.fields())[0] for name in names}
    return _all(engine, run, asked)


def _all(engine: Engine, run: Run, asked: Mapping[str, Request]) -> dict[str, Result]:
    for request in asked.values():
        if engine.cached(request) is None:
            engine.submit(request)
    found = {name: answer(engine, request) for name, request in asked.items()}
    check_windows(next(iter(found.values())), run)
    return found


def _verdicts(engine: Engine, run: Run) -> Result:
    """Return all measures and verdicts; of what runs the model again only what is stored."""
    whole, _ = build_request("verdicts", run.model, **run.fields())
    missing = [name for name in engine.missing(whole) if isinstance(find(name), Experiment)]
    params = whole.params | {"leave_out": ",".join(missing)}
    return _all(engine, run, {"verdicts": whole.model_copy(update={"params": params})})["verdicts"]
