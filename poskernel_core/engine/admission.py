"""What is refused before anything starts: missing parts, limits of the server, lack of room.

Stored results and joined jobs cost nothing; only new computations are checked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from operator import itemgetter

from poskernel_core.analyses.base import FEWER
from poskernel_core.common.errors import BadRequest, Busy, ComputeDisabled, NotInModel, TooLarge
from poskernel_core.common.groups import first_of_all, groups_of, in_equal_groups
from poskernel_core.common.rounding import counted
from poskernel_core.common.settings import Settings, settings
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, Gather, ModelSpec, RunSpec
from poskernel_core.data.made import RANDOM, REPEATED
from poskernel_core.data.texts import BUNDLED, HUB, check_reachable, find_file
from poskernel_core.engine.job import Client
from poskernel_core.engine.plan import Plan
from poskernel_core.models import catalog
from poskernel_core.models.attached import attached
from poskernel_core.models.catalog import Located
from poskernel_core.models.fragments import refuse
from poskernel_core.models.geometry import Geometry, bytes_gathered
from poskernel_core.models.tokenizers import check_tokenizer
from poskernel_core.storage.statistics import windows_of
from poskernel_core.storage.store import Store

WAY_OUT = "choose fewer, or compute them on your own machine."

MAX_TOKEN = 16
"""Upper bound of a corpus's mean bytes of text per token."""


def check_plan(store: Store, plan: Plan, todo: Sequence[Plan], quotas: Settings | None) -> None:
    """Check everything that may forbid a computation, of which ``todo`` was looked up.

    ``quotas`` are the limits of this server; None for a local program.
    """
    model, uses, question = plan.run.model, plan.question.uses, plan.question
    local, find = catalog.is_local(model.name), cache(catalog.find_again)
    if (uses and local) or question.scheme:
        located = find(model)
        if uses and local:
            refuse(model.name, located.config, uses)
        if not question.fits_scheme(located.geometry.scheme):
            schemes = " or ".join(question.scheme.replace(" ", ", ").rsplit(", ", 1))
            raise NotInModel(
                f"{model.name!r} has {located.geometry.scheme} positions, and this is about "
                f"{schemes} ones: choose a model with {schemes} positions."
            )
    check_worker()
    if quotas is not None:
        _check_size(plan, [part for part in todo if not store.has(part.key)], quotas)
    for first in todo[:1]:
        _check_prerequisites(store, first, find)


def computes() -> bool:
    """Return whether this process may compute: torch is installed and the server not read-only."""
    return not settings().read_only and find_spec("torch") is not None


def check_worker() -> None:
    """Check that computing is possible here."""
    if not computes():
        raise ComputeDisabled(
            "This server shows what was computed before and computes nothing itself, and this "
            "result is not among it: choose other settings, or ask whoever runs the server to "
            "import it."
        )


def check_open(jobs: Iterable[Mapping[Client, str]], person: str, quotas: Settings) -> None:
    """Check that a person may have one more job, by the clients of each open one.

    Those that wait for a composition do not count for its parts.
    """
    people = [{who for at, who in job.items() if who and isinstance(at, str)} for job in jobs]
    own, every = sum(person in persons for persons in people), sum(map(bool, people))
    if own >= quotas.max_jobs:
        raise Busy(
            f"This server keeps up to {counted(quotas.max_jobs, 'computation')} of one reader at a "
            f"time, and {own:,} of yours wait or run: ask again when some of them are done, or "
            "cancel some."
        )
    if every >= quotas.max_jobs_total:
        raise Busy(
            f"This server keeps up to {counted(quotas.max_jobs_total, 'computation')} at a time, "
            f"and {every:,} of its readers' wait or run: ask again in a few minutes."
        )


def _check_size(plan: Plan, todo: Sequence[Plan], quotas: Settings) -> None:
    _check_texts(plan, quotas.max_characters)
    passes = dict.fromkeys(windows_of(run) for part in todo for run in part.missing or ())
    for run in passes:
        _check("window", run.windows, quotas.max_windows)
    read_by_passes = sum(run.windows * run.context for run in passes)
    needs: list[tuple[int, Callable[[int], tuple[str, str]]]] = [(read_by_passes, lambda _: FEWER)]
    for part in todo:
        if (experiment := part.experiment) is not None:
            if experiment.draws:
                _check("sample", part.run.windows, quotas.max_samples)
            else:
                read = experiment.reads(part.run, part.params)
                _check("window", read.windows, quotas.max_windows)
            its_way = partial(experiment.smaller, part.run, part.params)
            needs.append((experiment.tokens(part.run, part.params), its_way))
    tokens, (most, smaller) = sum(each for each, _ in needs), max(needs, key=itemgetter(0))
    if quotas.max_tokens is not None and tokens > quotas.max_tokens:
        left = quotas.max_tokens - (tokens - most)
        what, way = smaller(left if left > 0 else quotas.max_tokens)
        raise TooLarge(
            f"This server reads up to {counted(quotas.max_tokens, 'token')} for one computation, "
            f"and this one needs up to {tokens:,} ({what}): {way}, or compute it on your own "
            "machine."
        )


def _check(what: str, number: int, most: int | None) -> None:
    if most is not None and number > most:
        raise TooLarge(
            f"This server computes up to {counted(most, what)} at a time; {number:,} were asked "
            f"for: {WAY_OUT}"
        )


def _check_texts(plan: Plan, most: int) -> None:
    texts = [plan.run.corpus.text or ""]
    for name, field in type(plan.params).model_fields.items():
        longest = [getattr(constraint, "max_length", None) for constraint in field.metadata]
        if MAX_TEXT_CHARACTERS in longest:  # a typed text, not a list of heads
            texts.append(getattr(plan.params, name) or "")
    length = max(map(len, texts))
    if length > most:
        raise TooLarge(
            f"This server reads typed texts of up to {counted(most, 'character')}, got {length:,}: "
            "shorten it, or compute it on your own machine."
        )


def _check_prerequisites(store: Store, plan: Plan, find: Callable[[ModelSpec], Located]) -> None:
    """Check what a plan that was looked up needs: weights, text, tokenizer, disk space."""
    missing, experiment = plan.missing or (), plan.experiment
    reads = [*missing, experiment.reads(plan.run, plan.params)] if experiment else missing
    for run in reads:
        local = catalog.is_local(run.model.name)
        if local:
            located = find(run.model)
            if located.away and attached(run.model.name):
                raise ComputeDisabled(
                    f"{run.model.name!r} is an object in another process, and this is not among "
                    f"its results: run {plan.line} there, or let it serve (lab.serve())."
                )
            catalog.check_weights_here(located)
        check_reachable(run.corpus)
        if local:
            made = run.corpus.name in (REPEATED, RANDOM) or run.corpus.name.endswith(".npy")
            _check_tokenizer(run.model, not made or run.destination is not None)
    for run in missing:
        if (needed := least_room(run, find(run.model).geometry)) > store.limit:
            raise BadRequest(
                f"The statistics of this run take {_megabytes(needed)} or more while they are "
                f"gathered, the store holds {_megabytes(store.limit)}: raise POSKERNEL_CACHE_GB, "
                "or ask for a shorter context."
            )


@lru_cache(maxsize=64)
def _check_tokenizer(model: ModelSpec, needed: bool) -> None:
    """Check a local model's tokenizer (cached: the fingerprint covers the tokenizer's files)."""
    check_tokenizer(catalog.find_again(model), needed)


def least_room(run: RunSpec, geometry: Geometry) -> int:
    """Return a lower bound of the bytes that the store must hold while a run is gathered."""
    windows = _least_windows(run)
    return bytes_gathered(_numbers(geometry, run, windows), groups_of(windows))


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.3g} MB"


def _least_windows(run: RunSpec) -> int:
    """Return a lower bound of a run's number of windows, without reading its text."""
    if run.corpus.name in (REPEATED, RANDOM, *HUB):
        return in_equal_groups(run.windows)
    if run.corpus.item is None and run.corpus.name in BUNDLED:
        size = find_file(run.corpus.name).stat().st_size
        least = min(run.windows, size // (MAX_TOKEN * run.context))
        return in_equal_groups(max(1, least))
    return 1


def _numbers(geometry: Geometry, run: RunSpec, windows: int) -> dict[Gather, int]:
    """Return how many values the largest sums of one group of texts contain, over all layers."""
    queries = len([n for n in run.positions if n < run.context])
    samples = first_of_all(run.queries_per_position, windows) // groups_of(windows)
    sizes = geometry.sums(run.context, queries, samples)
    return {name: sizes.get(name, 0) for name in run.gather}
