"""One run shared by devices, or by the workers of a cluster: tasks go out, sums come back."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed
from poskernel_core.common.shards import Shard
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.data import corpora
from poskernel_core.engine import process
from poskernel_core.engine.distributed import devices
from poskernel_core.engine.distributed.attempts import ATTEMPTS, Attempts
from poskernel_core.engine.distributed.devices import run_on_devices
from poskernel_core.engine.distributed.shards import (
    carry_out,
    check_arrived,
    file_name,
    final_event,
    merge,
    tasks_of,
)
from poskernel_core.engine.engine import describe_run
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.disks import file_of

CONTEXT, TEXTS, OF = 13, 17, 3
GATHER = ("keys", "queries", "patterns", "scores")


@pytest.fixture(scope="module")
def run(tmp_path_factory, model_dirs):
    """A small run over windows of random tokens."""
    folder = tmp_path_factory.mktemp("shared")
    np.save(folder / "ids.npy", builders.random_ids(TEXTS, CONTEXT, seed=7).numpy())
    corpus = corpora.resolve(CorpusSpec(name=str(folder / "ids.npy")))
    given = {"context": CONTEXT, "windows": TEXTS, "gather": GATHER}
    described = describe_run(str(model_dirs["gpt2"]), corpus=corpus, **given)
    return described.model_copy(update={"corpus": corpus})


@pytest.fixture
def tasks(run):
    """Its shards."""
    shards = [Shard(number=number, of=OF) for number in range(OF)]
    return tasks_of([run], shards, Execution(device="cpu"))


@pytest.fixture(scope="module")
def expected(run, tmp_path_factory):
    """The statistics of the same shards, computed one after another in this process."""
    store = Store(tmp_path_factory.mktemp("expected"))
    shards = [Shard(number=number, of=OF) for number in range(OF)]
    for task in tasks_of([run], shards, Execution(device="cpu")):
        made = carry_out(WorkerContext(store), task, silent)
        assert all(map(store.has, made["keys"]))
        check_arrived(store, task, made, "This machine")
    return merged(store, run)


def silent(done, total, note):
    """A report that nobody reads."""


def merged(store, run):
    """The bytes of all statistics of a run whose shards are in a store."""
    merge(store, {}, [run], OF, silent)
    found = StoredStatistics.open(store, run)
    assert found is not None
    return [
        {name: array.tobytes() for name, array in found.layer(layer).items()}
        for layer in range(found.header.n_layers)
    ]


@pytest.mark.slow
def test_two_devices_and_a_killed_process(tmp_path, run, tasks, expected, monkeypatch):
    """Two processes share three shards; that of the killed one is given to a new one.

    The statistics are those of one process, bit for bit.
    """
    store, started, start, notes = Store(tmp_path), [], devices.Child, []

    def killed_at_first(*given):
        started.append(start(*given))
        if len(started) == 1:
            os.kill(started[0].pid, signal.SIGKILL)
        return started[-1]

    monkeypatch.setattr(devices, "Child", killed_at_first)
    run_on_devices(("cpu", "cpu"), tasks, store, lambda *told: notes.append(told))

    codes = [each.close() for each in started]
    assert (-signal.SIGKILL, 3) == (codes[0], len(codes))
    assert expected == merged(store, run)
    assert {"0 of 3 shards done; windows"} <= {note for _, _, note in notes}


def test_a_process_that_cannot_be_started(tmp_path, tasks, monkeypatch):
    """The shard is named after three attempts; a folder in place of the log is in nobody's way."""
    (tmp_path / "worker.log").mkdir()

    def no_memory(*_given, **_named):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(process.subprocess, "Popen", no_memory)
    told = []

    def report(*event):
        told.append(event)
        if len(told) > 300:
            raise Cancelled("It hangs.")

    with pytest.raises(
        ComputeFailed, match=r"^Shard ./3 failed 3 times \(.* not be started \(Cannot allocate mem"
    ):
        run_on_devices(("cpu", "cpu"), tasks, Store(tmp_path), report)


def test_cancelled(tmp_path, tasks, workers):
    """The processes end with the report that says so."""

    def report(done, total, note):
        raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        run_on_devices(("cpu", "cpu"), tasks, Store(tmp_path), report)
    assert [-signal.SIGTERM] * 2 == [each.code for each in workers]


def test_a_task_that_cannot_be_done(tmp_path, tasks):
    """What is wrong with the request is said at once, and is not tried again."""
    corpus = tasks[0].run.corpus.model_copy(update={"fingerprint": "other"})
    wrong = tasks[0].model_copy(update={"run": tasks[0].run.model_copy(update={"corpus": corpus})})
    attempts = Attempts([wrong])
    attempts.tell(attempts.take(), final_event(wrong.model_dump_json(), silent, tmp_path))

    with pytest.raises(BadRequest, match="changed meanwhile"):
        attempts.run([], silent)


def test_attempts(tasks):
    """A shard is tried three times, then named; what others did stays done."""
    attempts = Attempts(tasks)
    assert [attempts.take(), attempts.take(), attempts.take()] == [0, 1, 2]
    attempts.tell(0, {"state": "running", "done": 2, "total": 6, "note": ""})
    attempts.tell(1, {"state": "running", "done": 1, "total": 6, "note": ""})
    assert (3, 12, "0 of 3 shards done; windows") == attempts.progress()
    attempts.tell(0, {"state": "done"})
    assert (7, 12, "1 of 3 shards done; windows") == attempts.progress()
    for _ in range(ATTEMPTS):
        assert attempts.error is None
        attempts.tell(2, {"state": "error", "again": True, "message": "killed"})
        assert attempts.error or attempts.take() == 2

    assert isinstance(attempts.error, ComputeFailed)
    assert "Shard 2/3 failed 3 times (killed)" in str(attempts.error)
    assert attempts.take() is None


def test_a_shard_as_a_file(tmp_path, tasks):
    """Its name is the same on every machine, and what is not there is said to be elsewhere."""
    (tmp_path / "files").mkdir()
    task = tasks[1].model_copy(update={"folder": str(tmp_path / "files")})
    made = carry_out(WorkerContext(Store(tmp_path / "store")), task, silent)

    assert str(tmp_path / "files" / file_name(task)) == made["file"]
    assert file_name(task).startswith("gpt2-")
    assert file_name(task).endswith("-shard-1-of-3.zip")
    check_arrived(Store(tmp_path / "empty"), task, made, "Machine A")
    with pytest.raises(BadRequest, match="Machine A wrote shard 1/3 to a store of its own"):
        check_arrived(Store(tmp_path / "empty"), task, {**made, "file": None}, "Machine A")
    with pytest.raises(BadRequest, match="name a folder that all machines share"):
        check_arrived(Store(tmp_path / "empty"), task, {**made, "file": "/none.zip"}, "A")


def test_a_shard_whose_sums_cannot_be_read(tmp_path, tasks):
    """It is computed anew at the next attempt, and no file without them is written before."""
    (tmp_path / "files").mkdir()
    task = tasks[0].model_copy(update={"folder": str(tmp_path / "files")})
    shared = WorkerContext(Store(tmp_path / "store"))
    made = carry_out(shared, task, silent)
    whole = Path(made["file"]).read_bytes()
    Path(made["file"]).unlink()
    layer = file_of(tmp_path / "store", made["keys"][1])
    layer.write_bytes(layer.read_bytes()[:-1])

    with pytest.raises(ComputeFailed, match="Shard 0/3 cannot be read from the store: run the "):
        carry_out(shared, task, silent)
    assert [] == list((tmp_path / "files").iterdir())
    assert made == carry_out(shared, task, silent)
    assert abs(len(whole) - Path(made["file"]).stat().st_size) < 1000  # seconds have more digits


def test_a_run_with_a_target_is_not_split(run):
    """Whether it is met is known only to whoever has all sums."""
    until = run.model_copy(update={"until": "kinds"})
    with pytest.raises(BadRequest, match="cannot be split: leave the target out"):
        tasks_of([until], [Shard(number=0, of=2)], Execution())
