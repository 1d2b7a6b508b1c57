"""A pass that is broken off goes on from its checkpoint; sums that are no numbers are refused."""

from dataclasses import replace

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common import shards
from poskernel_core.common.errors import Cancelled, ComputeFailed
from poskernel_core.common.shards import WHOLE, Shard
from poskernel_core.common.specs import ALL_GATHERED, CorpusSpec, Execution, Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.execute import compute
from poskernel_core.engine.plan import make_plan
from poskernel_core.passes import merging, runner, streaming
from poskernel_core.passes.merging import merge_shards
from poskernel_core.passes.prepare import sizes_for
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS
from poskernel_core.storage.shards import Partial, drop_partial, partial_keys, partials_of
from poskernel_core.storage.statistics import (
    StoredStatistics,
    missing_statistics,
    part_key,
    read_checkpoint,
)
from poskernel_core.storage.store import Store
from tests.support import builders

WINDOWS, CONTEXT, EACH = 70, 13, 7
IDS = builders.random_ids(WINDOWS, CONTEXT, seed=5).numpy()
POSITIONS, GATHER = (3, 12), ("keys", "queries", "patterns", "scores")
VERSIONS = {"torch": "1"}


def nobody(done, total, note):
    """Nobody looks."""


@pytest.fixture(autouse=True)
def checkpoints_after_each_batch(monkeypatch, unchecked):
    """Windows are read two at a time, and every batch but a group's last is followed by one."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(shards, "TOKENS_PER_STEP", 2 * CONTEXT)
    monkeypatch.setitem(streaming.TOKENS_PER_BATCH, "cpu", 2 * CONTEXT)


@pytest.fixture(scope="module")
def run(model_dirs, tmp_path_factory):
    """Ten groups of seven windows, which take four batches each."""
    file = tmp_path_factory.mktemp("ids") / "ids.npy"
    np.save(file, IDS)
    given = {"context": CONTEXT, "windows": WINDOWS, "start_token": False}
    run = describe_run(str(model_dirs["gpt2"]), corpus=CorpusSpec(name=str(file)), **given)
    return run.model_copy(
        update={"gather": GATHER, "positions": POSITIONS, "queries_per_position": 30}
    )


@pytest.fixture
def reads(monkeypatch):
    found, read = [], Pass._read

    def listen(work, tokens, rows):
        found.append(rows)
        read(work, tokens, rows)

    monkeypatch.setattr(Pass, "_read", listen)
    return found


def gather(store, run, until=None, shard=WHOLE):
    """Gather a run, or its shard, and break off before the window with that number is read."""

    def report(done, total, note):
        if until is not None and note.startswith("Reading") and done >= until:
            raise Cancelled("Enough.")

    try:
        runner.gather_shard(WorkerContext(store), run, shard, Execution(), VERSIONS, report)
    except Cancelled:
        assert until is not None
        return
    if shard.of == 1:
        merge_shards(store, {}, run, 1, nobody)


def arrays(store, run):
    found = StoredStatistics.open(store, run)
    return found.header, [dict(found.layer(layer)) for layer in range(found.header.n_layers)]


@pytest.fixture(scope="module")
def unbroken(run, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "TOKENS_PER_STEP", 2 * CONTEXT)
        patch.setitem(streaming.TOKENS_PER_BATCH, "cpu", 2 * CONTEXT)
        store = Store(tmp_path_factory.mktemp("unbroken"))
        gather(store, run)
    return arrays(store, run)


def equal(left, right):
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].tobytes() == other[name].tobytes(), name


def windows(reads):
    return [window for rows in reads for window in rows]


@pytest.mark.parametrize("until", [(2, 2, 13), (69,)])
def test_a_pass_goes_on(tmp_path, run, reads, unbroken, until):
    """However often it is broken off, it reads every window once, and gives the same bits."""
    store = Store(tmp_path)
    for each in until:
        gather(store, run, each)
    assert StoredStatistics.open(store, run) is None
    gather(store, run)

    order = [window for group in range(10) for window in range(group, WINDOWS, 10)]
    assert order == windows(reads)
    header, found = arrays(store, run)
    equal(unbroken[1], found)
    assert (0, WINDOWS) == (unbroken[0].resumed_at_window, header.windows)
    last = EACH * (until[-1] // EACH) + min(EACH, -(-(until[-1] % EACH) // 2) * 2)
    assert last == header.resumed_at_window
    assert not any(Partial.read(store.get(key)[0]) for key in store.keys(""))
    assert read_checkpoint(store, run) is None


def test_a_shard_goes_on(tmp_path, run, unbroken):
    """Every shard is broken off in the middle of a group, and they add up to the same bits."""
    store, begun, of = Store(tmp_path), [], 3
    for number in range(of):
        shard = Shard(number=number, of=of)
        gather(store, run, 3, shard)
        begun.append(read_checkpoint(store, run, shard) is not None)
        gather(store, run, shard=shard)
    assert any(begun)
    merge_shards(store, {}, run, of, nobody)

    equal(unbroken[1], arrays(store, run)[1])


CHANGES = {
    "group": lambda header, run: header | {"group": 2},
    "all read": lambda header, run: header | {"done": EACH},
    "nothing read": lambda header, run: header | {"done": 0},
    "versions": lambda header, run: header | {"made": header["made"] | {"versions": {}}},
    "tokens": lambda header, run: header | {"made": header["made"] | {"tokens": "0" * 64}},
    "gather": lambda header, run: header | {"gather": ["keys"]},
    "older layout": lambda header, run: {"done": 4, "gather": list(GATHER)},
    "no number": lambda header, run: header | {"done": "4"},
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_checkpoint_of_something_else(tmp_path, run, reads, case):
    """Of another group, text or version, of fewer sums: the group is read from its beginning."""
    store = Store(tmp_path)
    gather(store, run, 11)
    (key,) = [key for key in store.keys("") if "done" in store.get(key)[0]]
    header, sums = store.get(key)
    assert (1, 4, list(GATHER)) == (header["group"], header["done"], header["gather"])
    wrong = {name: array + 1 for name, array in sums.items()}
    store.put(key, CHANGES[case](header, run), wrong)
    reads.clear()
    gather(store, run, 2 * EACH)

    assert [*range(1, WINDOWS, 10)] == windows(reads)


def test_a_checkpoint_of_more_statistics(tmp_path, run, reads, unbroken):
    store, few = Store(tmp_path), run.model_copy(update={"gather": ("keys", "patterns")})
    gather(store, run, 5)
    reads.clear()
    gather(store, few)

    assert WINDOWS - 6 == len(windows(reads))
    for one, other in zip(unbroken[1], arrays(store, few)[1], strict=True):
        assert "mean_keys.groups" in other
        assert "queries" not in other
        for name, array in other.items():
            assert one[name].tobytes() == array.tobytes()


def test_groups_that_are_written(tmp_path, run, reads, unbroken, monkeypatch):
    """They are not read again, unless they are of other tokens."""
    store, prepare = Store(tmp_path), WorkerContext.prepare

    def other(*given):
        ids, plan = prepare(*given)
        return (ids + 1) % 97, plan

    with monkeypatch.context() as patch:
        patch.setattr(WorkerContext, "prepare", other)
        gather(store, run, 25)
    assert [0, 1, 2] == [each.group for each in partials_of(store, run, "keys", WHOLE)]
    reads.clear()
    gather(store, run)

    assert WINDOWS == len(windows(reads))
    equal(unbroken[1], arrays(store, run)[1])


def test_fewer_groups_than_before(tmp_path, run, reads):
    """Blocks of groups that there are no more, made of other tokens, are in nobody's way."""
    store = Store(tmp_path)
    gather(store, run, 65)
    short = IDS[:7]
    prepare = WorkerContext.prepare

    def fewer(shared, run, execution, located, tokenizer):
        _, plan = prepare(shared, run, execution, located, tokenizer)
        return short, replace(plan, windows=7)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerContext, "prepare", fewer)
        gather(store, run)

    assert (7, 7) == (arrays(store, run)[0].windows, arrays(store, run)[0].groups)


def test_killed_while_sums_are_deleted(tmp_path, run, monkeypatch):
    """The first answer from the statistics deletes the sums of groups that are still there."""
    store, found, drop, drops = Store(tmp_path), [], Store.drop, 17
    plan = make_plan(Request(analysis="etc", run=run, params={"skip": 1}))

    def killed(store, run, shard):
        found.extend(partial_keys(store, run, shard))
        left = iter(range(drops))
        with monkeypatch.context() as patch:
            patch.setattr(Store, "drop", lambda self, key: next(left) + 1 and drop(self, key))
            drop_partial(store, run, shard)

    monkeypatch.setattr(merging, "drop_partial", killed)
    with pytest.raises(StopIteration):
        gather(store, plan.needs["main"])
    assert len(found) - drops == sum(map(store.has, found)) > 0
    compute(store, plan, nobody)
    assert not any(map(store.has, found))


def test_less_at_a_time(tmp_path, run, monkeypatch):
    """Where memory runs out, half as much is read from the checkpoint on, in later groups too."""
    tried, read, most = [], Pass._read, 2

    def small(work, tokens, rows):
        tried.append(len(rows))
        if len(rows) > most:
            next(work._totals())[1].add_(3.0)  # spoilt by half of a batch
            raise streaming.OutOfMemory
        read(work, tokens, rows)

    monkeypatch.setattr(Pass, "_read", small)
    store = Store(tmp_path)
    runner.gather_run(WorkerContext(store), run, Execution(batch=8), VERSIONS, nobody)

    assert [1, 1, 2, 3, 3, 2, 1, *9 * [1, 1, 2, 2, 1]] == tried
    whole = pk.run_pass(
        run.model.name,
        IDS,
        positions=POSITIONS,
        queries_per_position=30,
        start_token=False,
        gather=GATHER,
        batch=most,
    )
    equal([whole.layer(layer) for layer in range(3)], arrays(store, run)[1])


def test_statistics_that_lack_a_layer(tmp_path, run):
    """They are not there, whichever layer it is."""
    store = Store(tmp_path)
    gather(store, run)
    for layer in range(3):
        key = part_key(run, "scores", str(layer))
        kept = store.get_bytes(key)
        assert StoredStatistics.open(store, run) is not None
        store.drop(key)
        assert StoredStatistics.open(store, run) is None
        assert ("scores",) == missing_statistics(store, run)
        store.put_bytes(key, kept)


def test_sums_that_are_not_exact(loaded):
    """Up to 2**53 grains, adding one grain is exact; beyond, it may be lost, and that is told."""
    model = loaded["gpt2"]
    work = Pass(model, sizes_for(model.geometry, IDS, POSITIONS, 7, True), ALL_GATHERED)
    sums, grain = work.sums(), STATISTICS["keys"].grain
    last = 2.0**53 * grain
    assert (last, last - grain) == (last + grain, (last - 2 * grain) + grain)
    sums["key_sum"][1, 0, 3, 2] = -last
    work.restore(sums)
    work.check_finite()

    for bad, words in (
        (-np.nextafter(last, np.inf), r"in layer 1, .* \(key_sum\): .* fewer windows"),
        (-np.inf, r"layer 1 are not finite \(key_sum\)"),
    ):
        sums["key_sum"][1, 0, 3, 2] = bad
        work.restore(sums)
        with pytest.raises(ComputeFailed, match=words):
            work.check_finite()
