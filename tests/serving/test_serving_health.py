"""The server's health: the store and the worker in every state, without starting a worker."""

import contextlib
import sqlite3
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from poskernel_core import Engine, Store
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import Settings
from poskernel_core.server import identity
from serving.admission import Admission
from serving.health import HEALTH, STATES, HealthMonitor, condition, health_route
from serving.metrics import registry
from tests.support.disks import fill, read_only, small_disk


@pytest.fixture
def store(tmp_path):
    with filled(tmp_path / "store") as made:
        yield made


@contextlib.contextmanager
def filled(place):
    store = Store(place)
    store.put("a", {}, {"x": np.arange(3.0)})
    with contextlib.closing(store):
        yield store


def health(make, **options):
    with asking(make, **options) as ask:
        return ask()


@contextlib.contextmanager
def asking(make, **options):
    route = health_route(HealthMonitor(make, kept=0, **options), lambda: 3)
    with TestClient(Starlette(routes=[route])) as client:

        def ask():
            answer = client.get(HEALTH)
            return answer.status_code, answer.json()

        yield ask


def test_all_is_well(store):
    """What is told, and nothing else: no path, no name of a machine."""
    engine = Engine(store)

    assert health(lambda: engine) == (
        200,
        {
            "status": "ok", "store": "writable", "worker": "none", "computes": True,
            "sessions": 3, **identity(),
        },
    )  # fmt: skip
    assert engine.worker_pid is None


@pytest.mark.parametrize(("worker", "status"), [("alive", "ok"), ("ended", "limited")])
def test_the_worker(store, worker, status):
    """Where it has ended the next request starts another, so the server is up."""
    code, told = health(lambda: SimpleNamespace(store=store, worker=worker))

    assert (200, worker, status) == (code, told["worker"], told["status"])
    assert ("compute process" in told["why"]) if worker == "ended" else ("why" not in told)


def test_a_store_that_cannot_be_used(tmp_path):
    """Nor do metrics name it; once it can be, all is well."""
    place = tmp_path / "store"
    place.write_text("in the way")
    with asking(lambda: Engine(Store(place))) as ask:
        status, told = ask()
        monitor = HealthMonitor(lambda: Engine(Store(place)), kept=0)
        numbers = registry(Admission(Settings()), monitor)
        text = generate_latest(numbers).decode()
        place.unlink()
        assert 200 == ask()[0]

    assert 503 == status
    assert ("failing", "failing", "none") == (told["status"], told["store"], told["worker"])
    assert told["why"]
    assert 'poskernel_store_state{state="failing"} 1.0' in text
    assert "poskernel_sessions 0.0" in text
    assert "poskernel_store_bytes" not in text
    assert str(tmp_path) not in f"{told} {text}"


def test_a_store_that_cannot_be_written(tmp_path, monkeypatch):
    """Pages are shown: 200; it is only told, and is as meant where the host wants no writing."""
    with filled(tmp_path / "store") as store:
        assert "writable" == condition(store).state
        with read_only(tmp_path / "store"):  # under a server that runs
            assert ("read-only", 1) == (condition(store).state, condition(store).entries)
        assert "writable" == condition(store).state
    with read_only(tmp_path / "store") as place:
        engine = Engine(Store(place))
        status, told = health(lambda: engine)
        assert (200, "limited", "read-only") == (status, told["status"], told["store"])
        assert "cannot be written" in told["why"]
        monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
        status, told = health(lambda: engine)

    assert (200, "ok", "read-only") == (status, told["status"], told["store"])
    assert not told["computes"]
    assert "why" not in told


def test_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", 3) as disk, filled(disk / "store") as store:
        fill(disk)
        assert ("full", 1) == (condition(store).state, condition(store).entries)
        status, told = health(lambda: Engine(store))

    assert (200, "limited", "full") == (status, told["status"], told["store"])
    assert "full" in told["why"]


def test_a_damaged_database(tmp_path):
    with filled(tmp_path) as store:
        store.close()
        for name in ("cache.db", "cache.db-wal", "cache.db-shm"):
            if (tmp_path / name).exists():
                (tmp_path / name).write_bytes(b"not a database" * 999)

        found = condition(store)

        assert ("writable", 0) == (found.state, found.entries)
        assert store.get("a") is None


def test_nothing_is_written_to_find_out(store):
    """And nothing is waited for: another process may be writing."""

    def seen():
        with contextlib.closing(sqlite3.connect(store.directory / "cache.db")) as database:
            rows = database.execute("SELECT key, store_time, access_time FROM Cache").fetchall()
        return rows, sorted(file.name for file in store.directory.rglob("*"))

    store.keys()  # the thread's connection
    before = seen()
    database = sqlite3.connect(store.directory / "cache.db", isolation_level=None)
    with contextlib.closing(database) as other:
        other.execute("BEGIN IMMEDIATE")
        found = [condition(store) for _ in range(3)]
        other.execute("ROLLBACK")

    assert before == seen()
    assert {"writable"} == {each.state for each in found} < {*STATES}
    assert {1} == {each.entries for each in found}
    assert all(each.size > 24 for each in found)


def test_the_store_is_looked_at_once_in_a_while(store):
    looks = []
    engine = Engine(store)
    monitor = HealthMonitor(lambda: looks.append(1) or engine, kept=3600)
    threads = [threading.Thread(target=monitor.store) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [1] == looks


def test_a_disk_that_hangs():
    hanging, looks = threading.Event(), []

    def make():
        looks.append(1)
        hanging.wait()
        raise BadRequest("too late")

    with asking(make, patience=0.05) as ask:
        assert [503, 503] == [ask()[0] for _ in range(2)]
        assert [1] == looks
        hanging.set()
