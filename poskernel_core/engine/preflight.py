"""Checks of a request before a worker process starts torch for it.

Requests with a stored result are not checked here: they need neither text nor disk space.
"""

from functools import lru_cache
from importlib.util import find_spec

from poskernel_core.common.errors import BadRequest, ComputeDisabled
from poskernel_core.common.groups import first_of_all, groups_of, in_equal_groups
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import Gather, ModelSpec, RunSpec
from poskernel_core.data.made import RANDOM, REPEATED
from poskernel_core.data.texts import BUNDLED, HUB, check_reachable, find_file
from poskernel_core.engine.execute import missing_runs
from poskernel_core.engine.requests import CanonicalRequest
from poskernel_core.models import catalog
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.tokenizers import check_tokenizer
from poskernel_core.storage.store import Store

MAX_TOKEN = 16
"""Upper bound of a corpus's mean bytes of text per token."""


def computes() -> bool:
    """Return whether this process may compute: torch is installed and the server not read-only."""
    return not settings().read_only and find_spec("torch") is not None


def check_worker() -> None:
    """Check that computing is possible here.

    Raises:
        ComputeDisabled: the server is read-only, or torch is not installed.
    """
    if not computes():
        raise ComputeDisabled(
            "This server shows what was computed before and computes nothing itself, and this "
            "result is not among it: choose other settings, or ask whoever runs the server to "
            "import it."
        )


def check_request(store: Store, asked: CanonicalRequest) -> None:
    """Check the prerequisites of a request: weights, text, tokenizer, disk space.

    Raises:
        ComputeDisabled: only the model's results are available here, not its weights.
        NoNetwork: the corpus is on the hub, which cannot be reached.
        UnsupportedModel: the tokenizer cannot be read.
        BadRequest: the statistics are larger than the store.
    """
    missing = missing_runs(store, asked)
    experiment = asked.experiment
    reads = [*missing, experiment.reads(asked.run, asked.params)] if experiment else missing
    for run in reads:
        if catalog.is_local(run.model.name):
            catalog.check_weights_here(catalog.find_again(run.model))
        check_reachable(run.corpus)
        if catalog.is_local(run.model.name):
            _check_tokenizer(run.model, _reads_text(run))
    for run in missing:
        _check_room(store.limit, run)


def _reads_text(run: RunSpec) -> bool:
    made = run.corpus.name in (REPEATED, RANDOM) or run.corpus.name.endswith(".npy")
    return not made or run.destination is not None


@lru_cache(maxsize=64)
def _check_tokenizer(model: ModelSpec, needed: bool) -> None:
    """Check a local model's tokenizer (cached: the fingerprint covers the tokenizer's files)."""
    check_tokenizer(catalog.find_again(model), needed)


def _check_room(limit: int, run: RunSpec) -> None:
    geometry = catalog.find_again(run.model).geometry
    windows = _least_windows(run)
    sums = 4 * groups_of(windows) * sum(_numbers(geometry, run, windows).values())
    needed = sums + least_bytes(geometry, run, windows)
    if needed > limit:
        raise BadRequest(
            f"The statistics of this run take {_megabytes(needed)} or more while they are "
            f"gathered, the store holds {_megabytes(limit)}: raise POSKERNEL_CACHE_GB, or ask for "
            "a shorter context."
        )


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


def least_bytes(geometry: Geometry, run: RunSpec, windows: int) -> int:
    """Return the size of a run's statistics without their headers and smallest arrays.

    A mean takes 32 bits, plus 16 bits per group of texts if there are several groups; means of the
    residual stream have no groups.
    """
    groups = groups_of(windows)
    bytes_of = {"queries": 4 * groups, "residuals": 4, "normed": 4}
    mean = 4 + 2 * groups * (groups > 1)
    found = _numbers(geometry, run, windows)
    return sum(bytes_of.get(name, mean) * count for name, count in found.items())


def _numbers(geometry: Geometry, run: RunSpec, windows: int) -> dict[Gather, int]:
    """Return how many values the largest sums of one group of texts contain, over all layers."""
    tokens, heads = run.context, geometry.n_heads
    queries = len([n for n in run.positions if n < tokens])
    stream, all_queries = tokens * geometry.d_model, heads * tokens * geometry.d_head
    samples = first_of_all(run.queries_per_position, windows) // groups_of(windows)
    numbers: dict[Gather, int] = {
        "keys": geometry.n_kv_heads * tokens * geometry.d_head,
        "queries": queries * heads * samples * geometry.d_head,
        "patterns": heads * queries * tokens,
        "residuals": stream,
        "normed": stream,
        "scores": all_queries,
    }
    return {name: geometry.n_layers * numbers.get(name, 0) for name in run.gather}
