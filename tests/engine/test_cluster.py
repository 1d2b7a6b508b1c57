"""One run shared by the workers of a Dask cluster."""

import os
import signal
import sys
from threading import Thread
from types import ModuleType

import pytest

from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.data import corpora
from poskernel_core.engine.distributed.attempts import Attempts
from poskernel_core.engine.distributed.cluster import check_address, run_on_cluster, workers_of
from poskernel_core.storage.store import Store
from tests.engine.test_shared_work import OF, expected, merged, run, silent, tasks
from tests.support import until

__all__ = ["expected", "run", "tasks"]

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


@pytest.mark.slow
def test_what_cannot_be_computed(cluster, tasks, tmp_path):
    """A worker's sentence comes back as it is, once."""
    address, store = cluster
    corpus = tasks[0].run.corpus.model_copy(update={"fingerprint": "other"})
    wrong = tasks[0].run.model_copy(update={"corpus": corpus})

    with pytest.raises(BadRequest, match="changed meanwhile"):
        run_on_cluster(address, [tasks[0].model_copy(update={"run": wrong})], store, silent)


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
        until(lambda: not any(client.run(executing).values()), 15)


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
