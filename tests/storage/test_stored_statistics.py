"""Statistics in the store: each under its own key, gathered once, together where they can be."""

import numpy as np
import pytest

from poskernel_core.common.errors import Cancelled, TooSmall
from poskernel_core.common.specs import Execution, Request
from poskernel_core.engine import execute
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import catalog
from poskernel_core.models.geometry import bytes_gathered
from poskernel_core.passes import runner
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.statistics import (
    StoredStatistics,
    missing_statistics,
    part_key,
    read_checkpoint,
)
from poskernel_core.storage.store import Store
from tests.support import silent
from tests.support.stages import run_over

pytestmark = pytest.mark.usefixtures("unchecked")

WINDOWS, CONTEXT = 30, 23
CPU = Execution(device="cpu", batch=2)


@pytest.fixture
def run(model_dirs, tmp_path):
    ids = np.random.default_rng(3).integers(1, 83, size=(WINDOWS, CONTEXT))
    return run_over(tmp_path, model_dirs["llama"], ids, WINDOWS)


@pytest.fixture
def passes(monkeypatch):
    seen, whole = [], runner.gather_run

    def gather_run(shared, run, *given):
        seen.append(run.gather)
        whole(shared, run, *given)

    monkeypatch.setattr(runner, "gather_run", gather_run)
    return seen


def asked(run, analysis="etc", **changes):
    return make_plan(Request(analysis=analysis, run=run.model_copy(update=changes)))


def gather(store, *requests, report=silent):
    plan = requests[0].looked_up(store)
    execute.gather_missing(WorkerContext(store), plan, CPU, report, requests[1:])


def test_only_what_is_missing_is_gathered(tmp_path, run, passes):
    """A second question over the same windows costs a pass for what it needs beside the first."""
    store = Store(tmp_path / "store")
    gather(store, asked(run))
    gather(store, asked(run, "entropy"))
    gather(store, asked(run), asked(run, "entropy"))

    assert [tuple(sorted(run.gather)), ("entropy",)] == passes
    assert not missing_statistics(store, run)


def test_a_store_without_room_for_what_others_need(tmp_path, run, passes, monkeypatch):
    """Then a pass gathers what its own question needs; without room for that, it fails."""
    monkeypatch.setattr(runner, "free_memory", lambda: 0)
    store = Store(tmp_path / "store")
    own, other = (asked(run, name) for name in ("etc", "entropy"))
    numbers = catalog.find_again(run.model).geometry.sums(CONTEXT, len(run.positions), 3)
    mine = bytes_gathered({name: numbers[name] for name in run.gather}, 10)
    store.limit = mine - 1
    with pytest.raises(TooSmall, match="too small for the sums"):
        gather(store, own, other)
    store.limit = mine + 50
    gather(store, own, other)
    gather(store, other, own)

    union = tuple(sorted((*run.gather, "entropy")))
    alone = tuple(sorted(run.gather))
    assert [union, alone, union, alone, ("entropy",)] == passes


def test_one_that_is_lost_is_gathered_alone(tmp_path, run, passes):
    """Whichever layer is lost; the others stay, and numbers are as before but for rounding."""
    store, lost = Store(tmp_path / "store"), "keys"
    gather(store, asked(run))
    before = [dict(StoredStatistics.open(store, run).layer(layer)) for layer in range(3)]
    for layer in range(3):
        key = part_key(run, lost, str(layer))
        held = store.get_bytes(key)
        store.drop(key)
        assert StoredStatistics.open(store, run) is None
        assert (lost,) == missing_statistics(store, run)
        store.put_bytes(key, held)
    store.drop(key)
    gather(store, asked(run))

    assert [tuple(sorted(run.gather)), (lost,)] == passes
    view = StoredStatistics.open(store, run)
    for layer, arrays in enumerate(before):
        assert set(arrays) == set(view.layer(layer))
        for name, array in arrays.items():  # of differences the last digit may be another
            tolerance = 2 if name.endswith(".groups") else 1e-5
            np.testing.assert_allclose(
                view.layer(layer)[name].astype(float), array, rtol=1e-5, atol=tolerance
            )


def test_one_pass_for_all_who_wait(tmp_path, run, passes):
    """What others need of the same windows comes along; other windows are their own pass."""
    store = Store(tmp_path / "store")
    longer = asked(run, "entropy", context=CONTEXT - 2)

    gather(store, asked(run), asked(run, "entropy"), longer)

    assert [tuple(sorted((*run.gather, "entropy")))] == passes
    assert () == asked(run, "entropy").looked_up(store).missing
    assert 1 == len(longer.looked_up(store).missing)


@pytest.mark.parametrize(("until", "kept"), [(3, None), (8, (2, 2))])
def test_a_pass_that_was_broken_off_goes_on_as_it_was(
    tmp_path, run, passes, monkeypatch, until, kept
):
    """Between two groups of three windows, and within one; what it did not gather follows."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    store = Store(tmp_path / "store")

    def report(done, total, note):
        if done >= until:
            raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        gather(store, asked(run, "entropy"), report=report)
    found = read_checkpoint(store, run)
    assert kept == (found and (found[0]["group"], found[0]["done"]))
    gather(store, asked(run), asked(run, "entropy"))

    assert [("entropy",), ("entropy",), tuple(sorted(run.gather))] == passes
    entropy = run.model_copy(update={"gather": ("entropy",)})
    read = 3 * (until // 3) + (kept[1] if kept else 0)
    assert read == StoredStatistics.open(store, entropy).header.resumed_at_window
    assert 0 == StoredStatistics.open(store, run).header.resumed_at_window
    assert read_checkpoint(store, run) is None


def test_a_layer_reads_what_it_is_asked_for(tmp_path, run):
    """And keeps it in memory, but no more than the store may hold."""
    store = Store(tmp_path / "store")
    gather(store, asked(run))
    view = StoredStatistics.open(store, run)
    layer = view.layer(2)
    assert {"mean_keys", "queries", "mean_rows", "profile"} < set(layer)
    read, get = [], store.get
    store.get = lambda key: (read.append(key), get(key))[1]
    first = layer["mean_keys"]
    assert (2, CONTEXT) == first.shape[:2]
    assert [part_key(run, "keys", "2")] == read
    assert layer.get("no such array") is None
    assert first is view.layer(2)["mean_keys"]

    small = Store(store.directory, limit_gb=1e-9)
    view = StoredStatistics.open(small, run)
    again, other = (view.layer(2)["mean_keys"] for _ in range(2))
    assert again is not other
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, other)
