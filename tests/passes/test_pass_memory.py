"""A pass needs no more memory for more texts."""

import json
import subprocess
import sys

import numpy as np
import pytest

from poskernel_core.common.errors import NoSpace
from poskernel_core.common.shards import WHOLE
from poskernel_core.common.specs import ALL_GATHERED, CorpusSpec, Execution
from poskernel_core.engine.engine import describe_run
from poskernel_core.passes import runner, streaming
from poskernel_core.passes.prepare import locate_again
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import Statistic
from poskernel_core.storage.shards import Partial, partials_of
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import ROOT, builders

GATHER = ALL_GATHERED
MEASURE = """
import json, resource, sys
import numpy as np
import torch
torch.set_num_threads(1)
import poskernel_core as pk
model = pk.load(sys.argv[1], device="cpu")
for count in (50, 500):
    windows = np.random.default_rng(0).integers(1, 293, (count, 41))
    gathered = pk.run_pass(model, windows, batch=7)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([gathered.header.windows, peak]))
"""


@pytest.fixture
def run(model_dirs, tmp_path):
    """Ten groups of five windows."""
    np.save(tmp_path / "ids.npy", builders.random_ids(50, 41).numpy())
    corpus = CorpusSpec(name=str(tmp_path / "ids.npy"))
    described = describe_run(str(model_dirs["gpt2"]), corpus=corpus, context=41, windows=50)
    return described.model_copy(update={"gather": GATHER})


def test_the_sums_of_one_group_are_held(tmp_path, run, monkeypatch):
    """A pass allocates them once; what it takes in the store is what is said, and goes again."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(runner, "write_checkpoint", watched(runner.write_checkpoint))
    made, zeros = [], Statistic.zeros

    def allocate(*given, **how):
        made.append(zeros(*given, **how))
        return made[-1]

    monkeypatch.setattr(Statistic, "zeros", allocate)
    store, sizes = Store(tmp_path / "store"), []
    put = Store.put

    def measured(store, key, header, arrays):
        put(store, key, header, arrays)
        sizes.append(sum(store.keys().values()))

    monkeypatch.setattr(Store, "put", measured)
    shared, execution = WorkerContext(store), Execution(device="cpu", batch=2)
    runner.gather_run(shared, run, execution, {}, lambda *_: None)

    assert 8 == len(made)
    numbers = sum(total.numel() for total in made)
    plan = shared.prepare(run, execution, locate_again(run), None)[1]
    assert (
        numbers
        == streaming.Pass(shared.models.take(locate_again(run), "cpu"), plan, GATHER).numbers()
    )
    manifests = 2**10 * 11 * len(GATHER)
    layers = 2**10 * 11 * 3 * len(GATHER)  # headers of entries
    assert 0.6 * numbers * runner.per_number(10) < max(sizes)
    assert max(sizes) <= numbers * runner.per_number(10) + manifests + layers
    held = sum(
        array.nbytes
        for layer in range(3)
        for array in StoredStatistics.open(store, run).layer(layer).values()
    )
    assert held < sum(store.keys().values()) < held + 2**10 * 4 * len(GATHER) + 2**16


def watched(write):
    """A checkpoint's sums are those of one group, and no other of them is there."""

    def check(store, run, group, done, made, sums, shard):
        write(store, run, group, done, made, sums, shard)
        written = {each.group for each in partials_of(store, run, "keys", shard)}
        assert set(range(group)) == written

    return check


def test_nothing_half_written_counts(tmp_path, run, monkeypatch):
    """Where the store fails within a group, the groups before it stay, and it is read again."""
    store, put, left = Store(tmp_path / "store"), Store.put_bytes, [70]

    def failing(store, key, data):
        left[0] -= 1
        if left[0] < 0:
            raise NoSpace("No space is left.")
        put(store, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_bytes", failing)
        with pytest.raises(NoSpace):
            runner.gather_run(WorkerContext(store), run, Execution(), {}, lambda *_: None)
    entries = 4 * len(GATHER)  # three layers and a manifest
    assert 70 // entries == len(partials_of(store, run, "scores", WHOLE)) == 3
    assert StoredStatistics.open(store, run) is None
    runner.gather_run(WorkerContext(store), run, Execution(), {}, lambda *_: None)

    assert 3 * 5 == StoredStatistics.open(store, run).header.resumed_at_window
    assert not [key for key in store.keys("") if Partial.read(store.get(key)[0])]
    assert entries == len(store.keys())


@pytest.mark.slow
def test_peak_memory_does_not_grow(model_dirs):
    """A process that has read 50 windows peaks at most 5 % higher when it reads 500 more."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(model_dirs["gpt2"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = dict(json.loads(line) for line in done.stdout.splitlines()[-2:])

    assert {50, 500} == set(peaks)
    assert peaks[500] <= 1.05 * peaks[50]
