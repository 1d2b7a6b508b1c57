"""The command line: ``python -m poskernel_core``.

Exit codes: 0 done, 2 bad request (one sentence on standard error), 1 anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from poskernel_core import analyses, catalog, hub, settings
from poskernel_core.analyses.base import Result
from poskernel_core.api import build_request
from poskernel_core.archive import export_model, import_archive
from poskernel_core.config import CorpusSpec, Execution, Request, model_prefix
from poskernel_core.engine import Engine
from poskernel_core.errors import (
    BadRequest,
    ComputeFailed,
    PosKernelError,
    StoreFailed,
    TooLittleText,
)
from poskernel_core.known import telling_head
from poskernel_core.options import add_ledger, add_result, add_run
from poskernel_core.outputs import check_out, write_out
from poskernel_core.precomputed import experiment_questions, standard_questions
from poskernel_core.published import BUNDLED, figures_of, known_models
from poskernel_core.reports import ledger_text, print_progress
from poskernel_core.reproduction import compare, published_name
from poskernel_core.settings import check_settings
from poskernel_core.store import Store, default_directory
from poskernel_core.terminal import complain, say

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        raise BadRequest(f"{message[:1].upper()}{message[1:]} (see '{self.prog} --help').")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        _check_letters(given)
        options = _parser().parse_args(given)
        check_settings()
        return options.command(options)
    except BadRequest as error:
        complain(error)
        return 2
    except (ComputeFailed, StoreFailed) as error:
        complain(f"{error} (The store, and its worker.log: {default_directory()}.)")
        return 1
    except PosKernelError as error:
        complain(error)
        return 1
    except KeyboardInterrupt:
        complain("Cancelled.")
        return 1
    except BrokenPipeError:  # whoever read our output has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _check_letters(arguments: Sequence[str]) -> None:
    """Refuse what cannot be the name of anything: bytes that are no UTF-8, and the zero byte."""
    for text in arguments:
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise BadRequest(f"Expected arguments in UTF-8, got {text[:80]!r}.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="poskernel_core", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    models = commands.add_parser("models", help="list the models, with what is cached")
    models.set_defaults(command=_models)
    ready = commands.add_parser("precompute", help="run the pass and the standard results")
    ready.set_defaults(command=_precompute)
    add_run(ready)
    ready.add_argument(
        "--experiments", action="store_true", help="also those on random tokens, as shown first"
    )
    show = commands.add_parser("show", help="print or write one result")
    show.add_argument("analysis", metavar="ANALYSIS", help=", ".join(analyses.ANALYSES))
    show.set_defaults(command=_show)
    add_run(show)
    add_result(show)
    ledger = commands.add_parser("reproduce", help="compute the posts' figures and compare")
    ledger.set_defaults(command=_reproduce)
    add_run(ledger)
    add_ledger(ledger)
    for name, command, verb in (("export", _export, "write"), ("import", _import, "read")):
        moved = commands.add_parser(name, help=f"{verb} all results of a model as one file")
        if name == "export":
            moved.add_argument("model", metavar="MODEL")
            moved.add_argument("--revision")
        moved.add_argument("file", type=Path, metavar="FILE")
        moved.set_defaults(command=command)
    return parser


def _run_fields(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "revision": options.revision,
        "corpus": CorpusSpec(
            name=options.corpus, item=options.corpus_item, revision=options.corpus_revision
        ),
        "context": options.context,
        "windows": options.texts,
        "start_token": not options.no_start_token,
        "seed": options.seed,
        "dtype": options.dtype,
    }


def _engine(options: argparse.Namespace) -> Engine:
    execution = Execution(
        device=options.device or settings.device(),
        batch=options.batch,
        all_windows=options.texts is not None,
    )
    return Engine(Store(), execution)


def _answer(engine: Engine, request: Request) -> Result:
    """Return a result, showing progress on a terminal."""
    found = engine.cached(request)
    if found is not None:
        return found
    job = engine.submit(request)
    try:
        while not job.wait(0.2):
            print_progress(job)
    except KeyboardInterrupt:
        engine.cancel(request)
        job.wait(5)
        raise
    print_progress(None)
    if job.error is not None:
        raise job.error
    found = engine.result(request)
    assert found is not None  # no time limit was set
    return found


def _models(options: argparse.Namespace) -> int:
    store = Store()
    for entry in catalog.entries():
        try:
            local = hub.on_this_machine(entry.name) or catalog.is_local(entry.name)
            count = _cached_results(store, entry.name) if local else 0
            state = f"{count} cached" if count else "ready" if local else "on the hub"
        except PosKernelError as error:
            state = str(error)
        say(f"{entry.name:40} {entry.size:>8}  {entry.positions:22} {state:12} {entry.good_for}")
    return 0


def _cached_results(store: Store, name: str) -> int:
    prefix = model_prefix(catalog.locate(name).spec.fingerprint)
    return sum(1 for _ in store.keys(prefix))


def _precompute(options: argparse.Namespace) -> int:
    geometry = catalog.locate(options.model, options.revision).geometry
    engine = _engine(options)
    try:
        for name, params in standard_questions(geometry):
            _keep_ready(engine, options, name, params)
        head = telling_head(options.model, "contextual")
        for name, params in experiment_questions(geometry, head) if options.experiments else ():
            try:
                _keep_ready(engine, options, name, params)
            except BadRequest as error:  # a model may be too small for one of them
                complain(f"{name}: left out. {error}")
    finally:
        engine.close()
    return 0


def _keep_ready(
    engine: Engine, options: argparse.Namespace, name: str, params: dict[str, Any]
) -> None:
    request, _ = build_request(name, options.model, params=params, **_run_fields(options))
    _answer(engine, request)
    complain(f"{name}: cached")


def _show(options: argparse.Namespace) -> int:
    given = {
        k.removeprefix("param_"): v for k, v in vars(options).items() if k.startswith("param_")
    }
    params = {name: value for name, value in given.items() if value is not None}
    check_out(options)
    engine = _engine(options)
    try:
        request, chosen = build_request(
            options.analysis,
            options.model,
            cell=options.cell,
            query=options.query,
            params=params,
            **_run_fields(options),
        )
        result = _answer(engine, request)
    finally:
        engine.close()
    _check_windows(result, options)
    write_out(result.select(**chosen), options)
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    file = options.figures or BUNDLED
    name = options.published_as or published_name(options.model)
    if options.published_as and not figures_of(name, file):
        raise BadRequest(
            f"No figures were published of {name!r}; there are some of "
            f"{', '.join(known_models(file))}."
        )
    catalog.locate(options.model, options.revision)
    engine = _engine(options)
    answer, lines = partial(_answer, engine), []
    try:
        for line in compare(options.model, figures_of(name, file), answer, **_run_fields(options)):
            complain(f"{line.figure.id}: {line.verdict}")
            lines.append(line)
    finally:
        engine.close()
    if options.json:
        json.dump([line.as_json() for line in lines], sys.stdout)
        print()
    else:
        say(ledger_text(name, lines, known_models(file)), lines=True)
    return 0


def _check_windows(result: Result, options: argparse.Namespace) -> None:
    """Refuse a stored result that had to do with fewer windows than are asked for now."""
    got = result.provenance["windows"]
    asked = result.provenance["windows_asked"]  # fewer where the analysis takes a number of its own
    if options.texts is not None and got < options.texts == asked:
        raise TooLittleText(
            f"Corpus {options.corpus!r} gives {got} windows of {result.provenance['context']} "
            f"tokens, {options.texts} were asked for: ask for fewer (--texts {got})."
        )


def _export(options: argparse.Namespace) -> int:
    located = catalog.locate(options.model, options.revision)
    count = export_model(Store(), located, options.file)
    complain(f"{count} entries of {options.model} written to {options.file}")
    return 0


def _import(options: argparse.Namespace) -> int:
    model, count = import_archive(Store(), options.file)
    complain(f"{count} entries of {model} imported")
    return 0
