"""The engine and its worker where the disk is full, cannot be written or has vanished."""

import os
import shutil

import numpy as np
import pytest

from poskernel_core import Engine, Execution, Store
from poskernel_core.common.errors import ComputeFailed, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.passes import runner
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.statistics import StoredStatistics
from tests.engine.test_engine import CPU, WAIT, asked, ids, scores
from tests.support.disks import fill, read_only, small_disk

__all__ = ["asked", "ids"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("near_worker")]


def gathers(store, run):
    runner.gather_run(WorkerContext(store), run, Execution(device="cpu"), {}, lambda *_: None)


def test_a_full_disk(tmp_path, model_dirs, asked):
    """A pass that cannot be written ends in one sentence, and the same worker goes on later."""
    with small_disk(tmp_path / "disk", 8) as disk:
        engine = Engine(Store(disk / "store"), CPU)
        assert engine.result(asked(3), WAIT) is not None
        worker, filler = engine.worker_pid, fill(disk)

        with pytest.raises(NoSpace, match=r"No space is left .* are needed, .* are free"):
            engine.result(asked(5), WAIT)
        assert engine.cached(asked(3)) is not None
        os.truncate(filler, filler.stat().st_size - 200_000)  # for the store's rows, not a pass
        with pytest.raises(NoSpace):
            engine.result(asked(6), WAIT)
        filler.unlink()

        assert engine.result(asked(6), WAIT) is not None
        assert engine.result(scores(model_dirs["gpt2"], 1), WAIT) is not None
        assert worker == engine.worker_pid
        engine.close()


def test_the_disk_fills_up_during_a_pass(tmp_path, asked, monkeypatch):
    """No lane is lost when the end of a pass, and the worker's log, can no longer be written."""
    with small_disk(tmp_path / "disk", 8) as disk:
        store, run, filler = Store(disk / "store"), asked(5).run, []
        finish = runner.streaming.finish

        def then_full(*given):
            filler.append(fill(disk))
            return finish(*given)

        with monkeypatch.context() as patch:
            patch.setattr(runner.streaming, "finish", then_full)
            with pytest.raises(StoreFailed, match="No space is left"):
                gathers(store, run)
        assert StoredStatistics.open(store, run) is None
        filler[0].unlink()
        gathers(store, run)
        assert StoredStatistics.open(store, run) is not None
        store.close()


def test_the_cache_directory_vanishes(tmp_path, asked):
    """Deleted under a running engine, it is made again, and everything goes on."""
    engine = Engine(Store(tmp_path / "store"), CPU)
    assert engine.result(asked(3), WAIT) is not None
    worker = engine.worker_pid
    shutil.rmtree(tmp_path / "store")

    assert engine.cached(asked(3)) is not None  # in memory still
    assert engine.result(asked(3, skip=5), WAIT) is not None
    assert worker == engine.worker_pid
    engine.close()


def test_a_directory_that_cannot_be_written(tmp_path, asked):
    """What is computed is served; anything new is refused at once, and no worker is started."""
    engine = Engine(Store(tmp_path), CPU)
    before = engine.result(asked(3), WAIT)
    engine.close()
    engine.store.close()
    opened = Engine(Store(tmp_path), CPU)
    with read_only(tmp_path) as directory:
        for served in (opened, Engine(Store(directory), CPU)):
            found = served.cached(asked(3))
            np.testing.assert_array_equal(before.values["etc"], found.values["etc"])
            with pytest.raises(ReadOnlyStore, match="what is computed already is shown"):
                served.submit(asked(4))
            assert served.worker_pid is None
            served.store.close()


def test_non_finite_sums(tmp_path, asked, monkeypatch):
    """Keys that overflow are an error that names the layer, and nothing is stored."""
    store, keys = Store(tmp_path), runner.streaming.STATISTICS["keys"]
    seen = keys.attention

    def overflow(self, call, batch):
        seen(self, call, batch)
        if call.layer == 1:
            self.sums["key_sum"][1, 0, 5] = np.inf

    monkeypatch.setattr(keys, "attention", overflow)
    with pytest.raises(ComputeFailed, match=r"layer 1 are not finite \(key_sum\)"):
        gathers(store, asked(3).run)
    assert [] == list(store.keys())
    store.close()
