"""A pass reads windows round the groups: in what order, and what if it is broken off."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.common import shards
from poskernel_core.common.errors import Cancelled, ComputeFailed
from poskernel_core.common.shards import WHOLE, Shard
from poskernel_core.common.specs import ALL_GATHERED, Execution, Request
from poskernel_core.data.corpora import Cut
from poskernel_core.engine.execute import compute
from poskernel_core.engine.plan import gathering, make_plan
from poskernel_core.models.geometry import bytes_kept
from poskernel_core.passes import merging, runner, streaming
from poskernel_core.passes.forming import Stage
from poskernel_core.passes.merging import merge_shards
from poskernel_core.passes.prepare import sizes_for
from poskernel_core.passes.streaming import Pass, batches, next_edge, round_ends
from poskernel_core.passes.worker_context import ModelCache, WorkerContext
from poskernel_core.statistics import STATISTICS
from poskernel_core.storage.shards import drop_partial, partial_keys, partials_of
from poskernel_core.storage.statistics import StoredStatistics, missing_statistics, read_checkpoint
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.stages import (
    VERSIONS,
    Looked,
    gather,
    held,
    in_order,
    nothing_left,
    run_over,
    same_bits,
)

pytestmark = pytest.mark.usefixtures("unchecked")

CONTEXT = 11
IDS = builders.random_ids(130, CONTEXT, seed=5).numpy()
GATHER, POSITIONS = ("keys", "patterns", "queries"), (3, 10)
STEPS = st.integers(1, 200)
PLACES = st.integers(0, 700)


@pytest.mark.parametrize(
    ("each", "step", "ends"),
    [
        (1, 3, [1]),
        (7, 1, [1, 2, 4, 7]),
        (7, 32, [1, 4, 7]),
        (8, 8, [1, 2, 4, 8]),
        (13, 3, [1, 2, 6, 12, 13]),
        (50, 1, [1, 2, 4, 8, 16, 24, 32, 40, 48, 50]),
        (50, 13, [1, 2, 4, 8, 26, 39, 50]),
        (50, 16, [1, 2, 4, 8, 16, 32, 48, 50]),
        (50, 17, [1, 4, 16, 34, 50]),
        (50, 32, [1, 4, 16, 32, 50]),
    ],
)
def test_ends_of_rounds(each, step, ends):
    """They double up to eight windows of every group; later eight follow, or a batch.

    With batches of more than sixteen windows, they are four times as many.
    """
    assert ends == round_ends(each, step)


@given(PLACES, PLACES, STEPS)
def test_edges_are_the_same_from_everywhere(first, later, step):
    """Whoever starts at any place comes to an edge of those who came from the beginning."""
    first, later = sorted((first, later))
    edges = {0}
    while max(edges) <= later:
        edges.add(next_edge(max(edges), step))

    assert next_edge(first, step) in edges or next_edge(first, step) > max(edges)
    assert next_edge(later, step) == max(edges)


@given(st.integers(1, 90), STEPS, st.integers(0, 90), st.integers(0, 9), st.integers(0, 90))
def test_batches_of_a_restart_are_the_same(each, step, seen, group, start):
    """Those that begin later are those that followed anyway, and together they are all windows."""
    windows = range(group, group + 10 * each, 10)
    whole = [*batches(windows, step, 10 * seen)]
    assert [*windows] == [window for batch in whole for window in batch]
    for batch in whole:
        assert len(batch) <= step
        assert (batch[0] < 10 * seen) == (batch[-1] < 10 * seen)
    number = start % len(whole)
    left = windows[(whole[number].start - group) // 10 :]
    assert whole[number:] == [*batches(left, step, 10 * seen)]


@given(st.integers(1, 300), STEPS)
def test_a_round_ends_where_a_batch_does(each, step):
    """Rounds follow each other, the first is of one window, and the last ends the group."""
    ends = round_ends(each, step)
    edges = {0}
    while max(edges) < each:
        edges.add(next_edge(max(edges), step))

    assert (1, each) == (ends[0], ends[-1])
    assert ends == sorted(set(ends))
    assert edges >= set(ends[:-1])
    for done, end in pairwise(ends):
        assert end - done <= max(streaming.FINE, done) + step


@given(st.integers(1, 400), st.integers(1, 40), st.integers(1, 30))
def test_a_shard_ends_where_a_batch_does(windows, size, of):
    context = 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "TOKENS_PER_STEP", size * context)
        windows = windows - windows % min(10, windows)
        whole = {
            (batch.start, batch.stop)
            for block in WHOLE.blocks(windows, context)
            for batch in batches(block.windows, size, windows)
        }
        cut = [
            (batch.start, batch.stop)
            for number in range(of)
            for block in Shard(number=number, of=of).blocks(windows, context)
            for batch in batches(block.windows, size, windows)
        ]

    assert len(whole) == len(cut)
    assert whole == set(cut)


@pytest.fixture(scope="module")
def models():
    return ModelCache()


@pytest.fixture(scope="module")
def run(model_dirs, tmp_path_factory):
    fields = {"gather": GATHER, "positions": POSITIONS, "queries_per_position": 30}
    return run_over(tmp_path_factory.mktemp("ids"), model_dirs["gpt2"], IDS, 70, **fields)


@pytest.fixture
def shared(tmp_path, models):
    return WorkerContext(Store(tmp_path / "store"), models)


@pytest.fixture(scope="module")
def unbroken(run, models, tmp_path_factory):
    """The layers of the run, and of its stages, by numbers of windows: in batches of eight."""
    shared, looked = WorkerContext(Store(tmp_path_factory.mktemp("unbroken")), models), Looked()
    gather(shared, run, 8, looked)
    return looked.found | {70: held(shared.store, run)[1]}


@pytest.fixture
def reads(monkeypatch):
    found, read = [], Pass._read

    def listen(work, tokens, rows):
        read(work, tokens, rows)
        found.append(rows)

    monkeypatch.setattr(Pass, "_read", listen)
    return found


def windows_of(reads):
    return [window for rows in reads for window in rows]


@pytest.mark.parametrize(
    ("windows", "batch", "stages"),
    [(7, 1, []), (23, 3, [4, 8, 10]), (70, 32, [4, 8, 10, 40]), (130, 3, [4, 8, 10, 20, 60, 120])],
)
def test_stages_of_a_run(shared, run, windows, batch, stages):
    """Four windows, eight, and those of every round but the last, which ends the run."""
    looked = Looked()
    asked = run.model_copy(update={"windows": windows, "gather": ("keys",)})
    gather(shared, asked, batch, looked)

    assert stages == [*looked.found]
    assert windows - windows % min(10, windows) == held(shared.store, asked)[0].windows


@pytest.mark.parametrize(("until", "resumed"), [((), 0), ((2, 2, 11), 11), ((66,), 67)])
def test_nobody_looks(shared, run, reads, unbroken, until, resumed):
    """Then one group is read after another: once, however often it is broken off."""
    for each in until:
        gather(shared, run, 8, until=each)
        assert StoredStatistics.open(shared.store, run) is None
    gather(shared, run, 8)

    assert [w for group in range(10) for w in range(group, 70, 10)] == windows_of(reads)
    header, layers = held(shared.store, run)
    same_bits(unbroken[70], layers)
    assert (resumed, 70) == (header.resumed_at_window, header.windows)
    nothing_left(shared.store, run)


def test_a_shard_goes_on(shared, run, unbroken):
    """Every shard is broken off in the middle of a group, and they add up to the same bits."""
    store, of = shared.store, 3

    def until_3(done, total, note):
        if note.startswith("Reading") and done >= 3:
            raise Cancelled("Enough.")

    for number in range(of):
        given = run, Shard(number=number, of=of), Execution(batch=8), VERSIONS
        with pytest.raises(Cancelled):
            runner.gather_shard(shared, *given, until_3)
        assert read_checkpoint(store, run, given[1]) is not None
        runner.gather_shard(shared, *given, lambda *_: None)
    merge_shards(store, {}, run, of, lambda *_: None)
    same_bits(unbroken[70], held(store, run)[1])


@pytest.mark.parametrize("short", [0, 1])
def test_room_for_the_sums_of_all_groups(shared, run, reads, unbroken, monkeypatch, short):
    """They may take half of the free memory; if a byte is missing, there are no rounds.

    And sums that are in memory together are never written, only what is made of them.
    """
    written, write = [], runner.write_partial
    monkeypatch.setattr(runner, "write_partial", lambda *a: written.append(a[3].group) or write(*a))
    located = runner.locate_again(run)
    plan = shared.prepare(run, Execution(), located, None)[1]
    numbers = Pass(shared.models.take(located, "cpu"), plan, GATHER).numbers()
    free = 2 * 8 * 10 * sum(numbers.values()) - short
    monkeypatch.setattr(runner, "free_memory", lambda: free)
    looked = Looked()
    gather(shared, run, 8, looked)

    assert ([] if short else [4, 8, 10, 20, 40]) == [*looked.found]
    second = 10 if short else 1
    assert [0, second] == windows_of(reads)[:2]
    assert [*range(10)] * short == written
    same_bits(unbroken[70], held(shared.store, run)[1])


@pytest.mark.parametrize(
    ("lacking", "most", "kept"), [("nothing", 10, 10), ("beside", 10, 0), ("some", 7, 0)]
)
def test_room_for_checkpoints(shared, run, unbroken, monkeypatch, lacking, most, kept):
    """Those of groups that are held together stay until the statistics are written.

    They go before if the store has no room for both; as many are written as it has room for.
    """
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    plan = shared.prepare(run, Execution(), runner.locate_again(run), None)[1]
    sums = Pass(shared.models.take(runner.locate_again(run), "cpu"), plan, GATHER)
    saved = sum(each.nbytes for each in sums.sums().values())
    beside = 10 * saved + bytes_kept(sums.numbers(), 10)
    room = {"nothing": beside, "beside": beside - 1, "some": 8 * saved - 1}
    store, there, write = shared.store, [], Stage.write
    monkeypatch.setattr(store, "limit", room[lacking])

    def count():
        return sum(read_checkpoint(store, run, WHOLE, group) is not None for group in range(10))

    def written(*given):
        there.append(count())
        write(*given)

    monkeypatch.setattr(Stage, "write", written)
    gather(shared, run, 8, lambda stage: there.append(count()) or stage.windows == 40)
    assert [4, min(8, most), most, most, most, kept] == there[:6]
    assert 0 == count()
    same_bits(unbroken[40], held(store, run)[1])


def test_a_shard_has_no_rounds(shared, run, monkeypatch):
    """It does not have all groups alike."""
    monkeypatch.setattr(shards, "TOKENS_PER_STEP", 7 * CONTEXT)
    looked = Looked()
    for number in range(5):
        shard = Shard(number=number, of=5)
        given = (Execution(batch=7), VERSIONS, lambda *_: None, looked)
        assert runner.gather_shard(shared, run, shard, *given)
        assert 2 == len(partials_of(shared.store, run, "keys", shard))

    assert {} == looked.found


def test_broken_off_after_every_batch(shared, run, reads, unbroken, monkeypatch):
    """However long the pause between checkpoints: a pass that is told to end keeps all.

    The first windows of every group are read, the second, two more, and what is left.
    """
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3600")
    looked, broken, reported = Looked(), [], []

    def once(done, total, note):
        if note.startswith("Reading"):
            reported.append(done)
            if len(reported) > 1:
                raise Cancelled("Enough.")

    while StoredStatistics.open(shared.store, run) is None:
        reported.clear()
        with suppress(Cancelled):
            runner.gather_run(shared, run, Execution(batch=8), VERSIONS, once, looked)
        broken.append(reported[-1])

    rounds = [(0, 1), (1, 2), (2, 4), (4, 7)]
    assert [range(g + 10 * a, g + 10 * b, 10) for a, b in rounds for g in range(10)] == reads
    assert [*range(1, 21), *range(22, 41, 2), *range(43, 68, 3)] == broken[:-1]
    assert [4, 8, 10, 20, 40] == [*looked.found]
    for windows, layers in (looked.found | {70: held(shared.store, run)[1]}).items():
        same_bits(unbroken[windows], layers)
    nothing_left(shared.store, run)


class Killed(Exception):
    """The process is gone: nothing can be kept any more."""


@pytest.mark.parametrize("batch", [3, 24, 33])
def test_killed(shared, run, reads, unbroken, monkeypatch, batch):
    """What was read since the last checkpoint is read again, and nothing else.

    Every batch takes a second; a checkpoint follows the first and then every third one. The groups
    that are finished, from the 31st batch on, are written with it.
    """
    seconds, keeps, listen = [0.0], [], Pass._read
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3")
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def timed(work, tokens, rows):
        if len(reads) + 1 == batch and not keeps:
            keeps.extend(reads)
            raise Killed
        listen(work, tokens, rows)
        seconds[0] += 1

    monkeypatch.setattr(Pass, "_read", timed)
    with pytest.raises(Killed):
        gather(shared, run, 8, lambda stage: False)
    saved = 1 + 3 * ((batch - 2) // 3)
    lost = keeps[saved:]
    assert (batch - 1, len(keeps[saved:])) == (len(keeps), (batch - 2) % 3)
    gather(shared, run, 8, lambda stage: False)

    read = windows_of(reads)
    assert sorted(windows_of(lost)) == sorted(w for w in set(read) if read.count(w) == 2)
    assert 70 + len(windows_of(lost)) == len(read)
    same_bits(unbroken[70], held(shared.store, run)[1])


@pytest.mark.parametrize(("group", "seconds", "again"), [(3, "0", []), (9, "3600", [9, 19])])
def test_no_memory_for_a_batch(shared, run, reads, unbroken, monkeypatch, group, seconds, again):
    """A group whose sums were spoilt goes on from its checkpoint; the others are as they were."""
    failed, read = [], Pass._read
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", seconds)

    def small(work, tokens, rows):
        if rows.start == group + 20 and not failed:
            failed.append(rows)
            next(work._totals())[1].add_(3.0)
            raise streaming.OutOfMemory
        read(work, tokens, rows)

    monkeypatch.setattr(Pass, "_read", small)
    looked = Looked()
    gather(shared, run, 8, looked)

    assert sorted([*range(70), *again]) == sorted(windows_of(reads))
    assert [4, 8, 10, 20, 40] == [*looked.found]
    for windows, layers in (looked.found | {70: held(shared.store, run)[1]}).items():
        same_bits(unbroken[windows], layers)


def test_no_memory_for_one_window(shared, run, monkeypatch):
    def never(work, tokens, rows):
        raise streaming.OutOfMemory

    monkeypatch.setattr(Pass, "_read", never)
    with pytest.raises(ComputeFailed, match="Not even one window of 11 tokens fits"):
        gather(shared, run, 8, lambda stage: False)


def key_of_checkpoint(store, group):
    headers = {key: store.get(key)[0] for key in store.keys("")}
    (key,) = [key for key, header in headers.items() if header.get("group") == group]
    return key


@pytest.mark.parametrize(
    ("how", "group", "done"), [("evicted", 2, [2, 12, 22, 32]), ("damaged", 8, [8, 18])]
)
def test_a_checkpoint_is_lost(shared, run, reads, unbroken, how, group, done):
    """That group alone is read again."""
    store, looked = shared.store, Looked()
    gather(shared, run, 8, looked, 33)
    key = key_of_checkpoint(store, group)
    if how == "evicted":
        store.drop(key)
    else:
        store.put_bytes(key, store.get_bytes(key)[:-1] + b"?")
    gather(shared, run, 8, looked)

    assert sorted([*range(70), *done]) == sorted(windows_of(reads))
    for windows, layers in (looked.found | {70: held(store, run)[1]}).items():
        same_bits(unbroken[windows], layers)


@pytest.mark.parametrize(("until", "group", "stages"), [(2, 1, [20, 40]), (12, 0, [4, 8, 10, 40])])
def test_a_checkpoint_is_lost_meanwhile(
    shared, run, reads, unbroken, monkeypatch, until, group, stages
):
    """Where a group that nobody read yet is found to be gone, no stage is told without it."""
    store, looked = shared.store, Looked()
    gather(shared, run, 8, looked, until)
    key, read = key_of_checkpoint(store, group), Pass._read

    def dropping(work, tokens, rows):
        read(work, tokens, rows)
        store.drop(key)

    monkeypatch.setattr(Pass, "_read", dropping)
    gather(shared, run, 8, looked)

    assert stages == [*looked.found]
    for windows, layers in (looked.found | {70: held(store, run)[1]}).items():
        same_bits(unbroken[windows], layers)


def test_sums_that_are_no_numbers(shared, run, monkeypatch):
    """They are no stage's."""
    read, looked = Pass._read, Looked()
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3600")

    def spoilt(work, tokens, rows):
        read(work, tokens, rows)
        if rows.start == 6:
            work.totals("patterns")["row_sum"][2, 1, 0, 3] = np.nan

    monkeypatch.setattr(Pass, "_read", spoilt)
    with pytest.raises(ComputeFailed, match=r"layer 2 are not finite \(row_sum\)"):
        gather(shared, run, 8, looked)

    assert [4] == [*looked.found]
    assert StoredStatistics.open(shared.store, run) is None
    assert 0 == read_checkpoint(shared.store, run)[0]["group"]


CHANGES = {
    "group": lambda header, run: header | {"group": 2},
    "all read": lambda header, run: header | {"done": 7},
    "nothing read": lambda header, run: header | {"done": 0},
    "versions": lambda header, run: header | {"made": header["made"] | {"versions": {}}},
    "tokens": lambda header, run: header | {"made": header["made"] | {"tokens": "0" * 64}},
    "gather": lambda header, run: header | {"gather": ["keys"]},
    "older layout": lambda header, run: {"done": 4, "gather": list(GATHER)},
    "no number": lambda header, run: header | {"done": "4"},
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_checkpoint_of_something_else(shared, run, reads, case):
    """Of another group, text or version, of fewer sums: the group is read from its beginning."""
    store = shared.store
    gather(shared, run, 8, until=11)
    (key,) = [key for key in store.keys("") if "done" in store.get(key)[0]]
    header, sums = store.get(key)
    assert (1, 4, list(GATHER)) == (header["group"], header["done"], header["gather"])
    wrong = {name: array + 1 for name, array in sums.items()}
    store.put(key, CHANGES[case](header, run), wrong)
    reads.clear()
    gather(shared, run, 8, until=14)

    assert [*range(1, 70, 10)] == windows_of(reads)


def test_a_checkpoint_of_more_statistics(shared, run, reads, unbroken):
    few = run.model_copy(update={"gather": ("keys", "patterns")})
    gather(shared, run, 8, until=3)
    reads.clear()
    gather(shared, few, 8)

    assert 70 - 4 == len(windows_of(reads))
    for one, other in zip(unbroken[70], held(shared.store, few)[1], strict=True):
        assert "mean_keys.groups" in other
        assert "queries" not in other
        for name, array in other.items():
            assert one[name].tobytes() == array.tobytes()


def test_groups_that_are_written(shared, run, reads, unbroken, monkeypatch):
    """They are not read again, unless they are of other tokens."""
    store, prepare = shared.store, WorkerContext.prepare

    def other(*given):
        ids, plan = prepare(*given)
        return (ids + 1) % 97, plan

    with monkeypatch.context() as patch:
        patch.setattr(WorkerContext, "prepare", other)
        gather(shared, run, 8, until=25)
    assert [0, 1, 2] == [each.group for each in partials_of(store, run, "keys", WHOLE)]
    reads.clear()
    gather(shared, run, 8)

    assert 70 == len(windows_of(reads))
    same_bits(unbroken[70], held(store, run)[1])


def test_fewer_groups_than_before(shared, run, reads):
    """Blocks of groups that there are no more, made of other tokens, are in nobody's way."""
    gather(shared, run, 8, until=65)
    prepare = WorkerContext.prepare

    def fewer(*given):
        return IDS[:7], replace(prepare(*given)[1], windows=7)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerContext, "prepare", fewer)
        gather(shared, run, 8)

    header = held(shared.store, run)[0]
    assert (7, 7) == (header.windows, header.groups)


def test_killed_while_sums_are_deleted(shared, run, reads, monkeypatch):
    """The next pass writes the other statistics without reading any text again.

    The first answer from the statistics deletes the sums of groups that are still there.
    """
    monkeypatch.setattr(runner, "free_memory", lambda: 0)  # so that there are such sums
    store, found, drop, drops = shared.store, [], Store.drop, 17
    plan = make_plan(Request(analysis="etc", run=run, params={"skip": 1}))

    def killed(store, part, shard):
        found.extend(partial_keys(store, part, shard))
        left = iter(range(drops))
        with monkeypatch.context() as patch:
            patch.setattr(Store, "drop", lambda self, key: next(left) + 1 and drop(self, key))
            drop_partial(store, part, shard)

    with monkeypatch.context() as patch:
        patch.setattr(merging, "drop_partial", killed)
        with pytest.raises(StopIteration):
            gather(shared, plan.needs["main"], 8)
    assert len(found) - drops == sum(map(store.has, found)) > 0
    left = missing_statistics(store, plan.needs["main"])
    assert len(plan.needs["main"].gather) - 1 == len(left) > 0
    reads.clear()
    gather(shared, gathering(plan.needs["main"], left), 8)
    assert [] == reads
    compute(store, plan, lambda *_: None)
    assert not any(map(store.has, found))
    assert not partial_keys(store, plan.needs["main"], WHOLE)


def test_less_at_a_time(shared, run, monkeypatch):
    """Where memory runs out, half as much is read from the checkpoint on, in later groups too."""
    tried, read, most = [], Pass._read, 2

    def small(work, tokens, rows):
        tried.append(len(rows))
        if len(rows) > most:
            next(work._totals())[1].add_(3.0)  # spoilt by half of a batch
            raise streaming.OutOfMemory
        read(work, tokens, rows)

    monkeypatch.setattr(Pass, "_read", small)
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    gather(shared, run, 8)

    assert [1, 1, 2, 3, 3, 2, 1, *9 * [1, 1, 2, 2, 1]] == tried
    whole = pk.run_pass(
        run.model.name, Cut(in_order(IDS, 70), "stretches"), positions=POSITIONS,
        queries_per_position=30, start_token=False, gather=GATHER, batch=most,
    )  # fmt: skip
    same_bits([whole.layer(layer) for layer in range(3)], held(shared.store, run)[1])


def test_a_pass_in_bfloat16(shared, run, unbroken):
    """Its header says by how much its means are off, from two windows; that is also how far."""
    half = run.model_copy(update={"dtype": "bfloat16"})
    gather(shared, half, 8)
    header, layers = held(shared.store, half)
    means = [np.stack([layer["mean_keys"] for layer in each]) for each in (layers, unbroken[70])]
    apart = np.linalg.norm(means[0] - means[1]) / np.linalg.norm(means[1])

    assert ("bfloat16", 70) == (header.dtype, header.windows)
    assert 1e-4 < header.dtype_error < 0.02
    assert 0.1 * header.dtype_error < apart < 2 * header.dtype_error


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
