"""One run shared by devices, or by the workers of a Dask cluster: tasks go out, sums come back."""

import os
import signal
import sys
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed
from poskernel_core.common.shards import Shard
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.data import corpora
from poskernel_core.engine import process
from poskernel_core.engine.distributed import devices
from poskernel_core.engine.distributed.cluster import check_address, run_on_cluster, workers_of
from poskernel_core.engine.distributed.devices import run_on_devices
from poskernel_core.engine.distributed.shards import (
    ATTEMPTS,
    Attempts,
    carry_out,
    check_arrived,
    file_name,
    final_event,
    merge,
    tasks_of,
)
from poskernel_core.passes import runner
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import builders, silent, until
from tests.support.disks import file_of
from tests.support.stages import run_over

pytestmark = pytest.mark.usefixtures("unchecked")

CONTEXT, TEXTS, OF = 13, 17, 3
GATHER = ("keys", "queries", "patterns", "scores")


@pytest.fixture(scope="module")
def run(tmp_path_factory, model_dirs):
    """A small run over windows of random tokens."""
    ids = builders.random_ids(TEXTS, CONTEXT, seed=7).numpy()
    return run_over(
        tmp_path_factory.mktemp("shared"), model_dirs["gpt2"], ids, TEXTS, gather=GATHER
    )


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


def merged(store, run, of=OF):
    """The bytes of all statistics of a run whose shards are in a store."""
    merge(store, {}, [run], of, silent)
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


def of_other_texts(task):
    """A shard of a corpus whose file has changed since it was described."""
    corpus = task.run.corpus.model_copy(update={"fingerprint": "other"})
    return task.model_copy(update={"run": task.run.model_copy(update={"corpus": corpus})})


def test_a_task_that_cannot_be_done(tmp_path, tasks):
    """What is wrong with the request is said at once, and is not tried again."""
    wrong = of_other_texts(tasks[0])
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


def test_the_only_shard(tmp_path, run, expected, monkeypatch):
    """Its sums are written as those of any other, although all of them fit into memory.

    A checkpoint would write groups that are finished; there is none.
    """
    monkeypatch.setattr(runner._Gathering, "save", lambda self: None)
    (task,) = tasks_of([run], [Shard(number=0, of=1)], Execution(device="cpu"))
    store = Store(tmp_path)
    made = carry_out(WorkerContext(store), task, silent)

    assert made["keys"]
    assert all(map(store.has, made["keys"]))
    assert expected == merged(store, run, 1)


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


ADDRESSES = {
    "tcp://10.0.0.7:8786": "another machine and not encrypted",
    "tcp://scheduler:8786": "another machine and not encrypted",
    "http://localhost:8787": "Expected the address of a Dask scheduler",
    "localhost:8786": "Expected the address",
    "tls://host": "Expected the address",
    "tcp://[::1": "Expected the address",
    "tcp://host:port": "Expected the address",
}


def test_addresses(monkeypatch):
    """This machine, and others with encryption; certificates and the package are asked for."""
    for address in ("tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1", "tls://host:1"):
        check_address(address)
    for address, words in ADDRESSES.items():
        with pytest.raises(BadRequest, match=words):
            check_address(address)
    pytest.importorskip("distributed")
    with pytest.raises(BadRequest, match="no certificates are given"):
        workers_of("tls://127.0.0.1:1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match=r"pip install '\.\[cluster\]'"):
        workers_of("tcp://127.0.0.1:1")


def test_progress_that_comes_while_it_is_told(tasks):
    """Workers tell of theirs in another thread, at any time."""
    attempts = Attempts(tasks)

    class Windows(int):
        def __radd__(self, other):
            told = {"state": "running", "done": 5, "total": 7}
            other_thread = Thread(target=attempts.tell, args=(1, told))
            other_thread.start()
            other_thread.join(0.2)
            return other + int(self)

    attempts.tell(0, {"state": "running", "done": Windows(1), "total": 7})
    done, total, note = attempts.progress()
    assert done in {1, 6}
    assert total in {7, 14}
    assert "0 of 3 shards done; windows" == note
    assert (6, 14) == attempts.progress()[:2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of two worker processes of one thread each, and their store."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    directory = tmp_path_factory.mktemp("cluster")
    # Workers take the settings of this process before those of their environment.
    patient = dask.config.set({"distributed.comm.timeouts.connect": "300s"})  # on a busy machine
    with pytest.MonkeyPatch.context() as patch, patient:
        patch.setenv("POSKERNEL_CACHE", str(directory / "store"))
        # A worker runs the main module of this process again, for which tests of pages put theirs.
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        with distributed.LocalCluster(
            host="127.0.0.1",
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            local_directory=str(directory),
        ) as made:
            yield made.scheduler_address, Store(directory / "store")


@pytest.mark.slow
def test_two_workers_one_killed(cluster, run, tasks, expected):
    """A worker is killed as it computes a shard; another takes it, and no bit is different."""
    from distributed import Client

    (address, store), killed = cluster, []
    with Client(address, set_as_default=False) as client:
        pids = client.run(os.getpid)

        def report(done, total, note):
            busy = [worker for worker, keys in client.processing().items() if keys]
            if busy and not killed:
                killed.append(pids[busy[0]])
                os.kill(killed[0], signal.SIGKILL)

        assert 2 == workers_of(address)
        run_on_cluster(address, tasks, store, report)

    assert killed
    assert expected == merged(store, run)


@pytest.mark.slow
def test_files_of_workers(cluster, tasks, tmp_path):
    """Where the store is not shared, a folder is: what a worker writes elsewhere is said."""
    address, _ = cluster
    with pytest.raises(BadRequest, match="to a store of its own: give all machines one"):
        run_on_cluster(address, tasks, Store(tmp_path / "own"), silent)

    (tmp_path / "files").mkdir()
    given = [each.model_copy(update={"folder": str(tmp_path / "files")}) for each in tasks]
    run_on_cluster(address, given, Store(tmp_path / "own"), silent)
    assert OF == len(list((tmp_path / "files").iterdir()))
    with pytest.raises(BadRequest, match="changed meanwhile"):  # a worker's sentence, as it is
        run_on_cluster(address, [of_other_texts(tasks[0])], Store(tmp_path / "own"), silent)


def executing(dask_worker):
    """How many tasks a worker has begun and not ended, cancelled ones included."""
    return len(dask_worker.state.executing)


@pytest.fixture
def long(tasks, run):
    """A shard of a hundred thousand windows, which nobody waits for."""
    corpus = corpora.resolve(CorpusSpec(name="random"))
    many = run.model_copy(update={"corpus": corpus, "windows": 100_000})
    return tasks[0].model_copy(update={"run": many, "execution": Execution(device="cpu", batch=1)})


@pytest.mark.slow
def test_cancel_on_a_cluster(cluster, long):
    """A shard of a hundred thousand windows ends soon after it was cancelled."""
    from distributed import Client

    address, store = cluster

    def report(done, total, note):
        if done:
            raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        run_on_cluster(address, [long], store, report)
    with Client(address, set_as_default=False) as client:
        until(lambda: not any(client.run(executing).values()))


def give_up_at_once(dask_scheduler):
    """Let the first death of a worker be the last."""
    dask_scheduler.allowed_failures = 0


@pytest.mark.slow
def test_workers_that_die_each_time(cluster, long):
    """The shard is named, and nobody waits for ever; it is too long to be done before the end."""
    from distributed import Client

    address, store = cluster
    other = long.model_copy(update={"run": long.run.model_copy(update={"seed": 11})})
    with Client(address, set_as_default=False) as client:
        client.run_on_scheduler(give_up_at_once)

        def report(done, total, note):
            for worker, keys in client.processing().items():
                if keys:
                    pid = client.run(os.getpid, workers=[worker], on_error="ignore").get(worker)
                    os.kill(pid, signal.SIGKILL) if pid else None

        with pytest.raises(ComputeFailed, match="Shard 0/3 was given up: the workers"):
            run_on_cluster(address, [other], store, report)
