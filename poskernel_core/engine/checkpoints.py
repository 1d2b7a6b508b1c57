"""What ``precompute`` computes: all results on the pages at default settings, of checkpoints too.

The checkpoints of a training run are computed one set of weights at a time.

In some public training runs two revisions hold the same weights. The hub gives the hashes of files
before they are downloaded, so the later revision is reported, and gets the results of the earlier
one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from poskernel_core.analyses import ANALYSES, find
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import Request, RunSpec
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import catalog, hub
from poskernel_core.models.checkpoints import Checkpoint
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.training import TrainingRun, first_of_equals
from poskernel_core.storage.store import Store


def first_questions(
    run: RunSpec, geometry: Geometry, cell: str, *, experiments: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and parameters of the questions that the pages ask by default.

    ``cell`` is the head that the pages open on; ``experiments`` adds experiments, which run the
    model again.
    """
    wanted = {"always", "experiments"} if experiments else {"always"}
    return [
        (
            name,
            question.default_params(run, geometry)
            | ({"head": cell} if "head" in question.params.model_fields else {}),
        )
        for name, question in ANALYSES.items()
        if question.precomputed in wanted
        and question.fits_scheme(geometry.scheme)
        and question.fits_model(run.model)
    ]


@contextmanager
def or_left_out(name: str, say: Callable[[str], object] = lambda line: None) -> Iterator[None]:
    """Skip an experiment that does not fit, for instance because the model is too small."""
    try:
        yield
    except BadRequest as error:
        if find(name).precomputed == "always":
            raise
        say(f"{name}: left out. {error}")


@dataclass(frozen=True)
class Precomputing:
    """How the checkpoints of a run are computed.

    ``requests`` are those for a checkpoint, by its revision; ``say`` prints a line about what was
    done; ``remove_weights`` deletes newly downloaded weights afterwards.
    """

    store: Store
    requests: Callable[[str], list[Request]]
    answer: Callable[[Request], Any]
    say: Callable[[str], None]
    remove_weights: bool = False


def precompute_checkpoints(run: TrainingRun, how: Precomputing) -> None:
    """Compute the requests for every checkpoint of a run."""
    unknown: list[Checkpoint] = []
    equal = first_of_equals(run, unknown.append)
    if unknown:
        how.say(
            f"The hub does not tell the hashes of {counted(len(unknown), 'checkpoint')}, or is not "
            f"reached (the first of them is {unknown[0].revision}): equal weights would not be "
            "noticed."
        )
    for checkpoint in run.checkpoints:
        name = checkpoint.revision
        twin = equal.get(name)
        if twin is not None:
            how.say(f"{name}: the same weights as {twin}, so its results are those")
            _take_over(how, twin, name)
        else:
            _compute(run, checkpoint, how)


def _compute(run: TrainingRun, checkpoint: Checkpoint, how: Precomputing) -> None:
    name, before = checkpoint.revision, frozenset[str]()
    commit = None if run.local else catalog.locate(run.model, name).spec.fingerprint
    if commit is not None:
        before = hub.weights_here(run.model, commit)
    try:
        for request in how.requests(name):
            with or_left_out(request.analysis, lambda line: how.say(f"{name}, {line}")):
                how.answer(request)
    finally:
        if commit is not None and how.remove_weights:
            freed = hub.remove_weights(run.model, commit, keep=before)
            if freed:
                how.say(f"{name}: {freed / 2**20:,.0f} MB of weights removed")
    how.say(f"{name}: cached")


def _take_over(how: Precomputing, first: str, name: str) -> None:
    for known, request in zip(how.requests(first), how.requests(name), strict=True):
        entry = how.store.get(make_plan(known).key)
        if entry is not None:
            header, arrays = entry
            model = {
                "revision": request.run.model.revision,
                "model_fingerprint": request.run.model.fingerprint,
                "weights_of": first,
            }
            made = {**header, "provenance": header["provenance"] | model}
            how.store.put(make_plan(request).key, made, arrays)
