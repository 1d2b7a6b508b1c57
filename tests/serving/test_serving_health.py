"""The server's health: the store and the worker in every state, without starting a worker."""

import contextlib
import sqlite3
import threading

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from poskernel_core import Engine, Store
from poskernel_core.common.errors import BadRequest
from poskernel_core.storage.condition import STATES, Condition, condition
from serving import watch as watch_module
from serving.health import HEALTH, WHY, health_route
from serving.watch import Watch
from tests.support.disks import fill, read_only, small_disk


def filled(place):
    """A store with one entry."""
    store = Store(place)
    store.put("a", {}, {"x": np.arange(3.0)})
    return store


@contextlib.contextmanager
def health_of(make, sessions=0):
    """What asks for the health of a server that has such an engine."""
    watch = Watch(make, kept=0)
    app = Starlette(routes=[health_route(watch, lambda: sessions)])
    with TestClient(app) as client:

        def ask():
            answer = client.get(HEALTH)
            return answer.status_code, answer.json()

        yield ask


def test_all_is_well(tmp_path):
    """What is told, and nothing else: no path, no name of a machine."""
    store = filled(tmp_path)
    engine = Engine(store)
    with health_of(lambda: engine, sessions=3) as ask:
        status, told = ask()

    assert 200 == status
    assert told == {
        "status": "ok",
        "store": "writable",
        "worker": "none",
        "computes": True,
        "sessions": 3,
        "version": "0.1.0",
    }
    assert engine.worker_pid is None
    store.close()


class Link:
    """A worker that may be dead."""

    def __init__(self, alive):
        self.alive = alive


@pytest.mark.parametrize(
    ("alive", "worker", "status", "why"),
    [(True, "alive", "ok", None), (False, "ended", "limited", "The compute process has ended")],
)
def test_the_worker(tmp_path, alive, worker, status, why):
    """One that has ended is told of; the next request starts another, so the server is up."""
    engine = Engine(filled(tmp_path))
    engine._link = Link(alive)
    with health_of(lambda: engine) as ask:
        code, told = ask()

    assert (200, worker, status) == (code, told["worker"], told["status"])
    assert told.get("why", "").startswith(why) if why else "why" not in told
    engine.store.close()


def test_a_store_that_cannot_be_used(tmp_path):
    """There is no engine then: pages say why, and so does the status."""
    (tmp_path / "file").write_text("x")
    with health_of(lambda: Engine(Store(tmp_path / "file"))) as ask:
        status, told = ask()

    assert 503 == status
    assert ("failing", "failing", "none") == (told["status"], told["store"], told["worker"])
    assert told["why"].startswith("The store can be neither read nor written")
    assert str(tmp_path) not in str(told)


def test_a_store_that_comes_back(tmp_path):
    """What was made impossible for a while is looked at anew."""
    place = tmp_path / "store"
    place.write_text("in the way")
    with health_of(lambda: Engine(Store(place))) as ask:
        assert 503 == ask()[0]
        place.unlink()
        assert 200 == ask()[0]


def test_a_store_that_cannot_be_written(tmp_path, monkeypatch):
    """Pages are shown: 200; it is only told, and is as meant where the host wants no writing."""
    filled(tmp_path / "store").close()
    with read_only(tmp_path / "store") as place:
        engine = Engine(Store(place))
        with health_of(lambda: engine) as ask:
            status, told = ask()
            assert (200, "limited", "read-only") == (status, told["status"], told["store"])
            assert told["why"].startswith("The store cannot be written")
            monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
            status, told = ask()
        assert 1 == condition(engine.store).entries

    assert (200, "ok", "read-only", False) == (
        status, told["status"], told["store"], told["computes"]
    )  # fmt: skip
    assert "why" not in told


def test_a_store_that_becomes_read_only(tmp_path):
    """Under a server that runs, as a disk does that has had an error."""
    store = filled(tmp_path / "store")
    assert "writable" == condition(store).state
    with read_only(tmp_path / "store"):
        found = condition(store)
    assert ("read-only", 1) == (found.state, found.entries)
    assert "writable" == condition(store).state
    store.close()


def test_a_full_disk(tmp_path):
    """What is stored can be read, nothing new be kept."""
    with small_disk(tmp_path / "disk", 3) as disk:
        store = filled(disk / "store")
        fill(disk)
        found = condition(store)
        with health_of(lambda: Engine(store)) as ask:
            status, told = ask()
        store.close()

    assert ("full", 1) == (found.state, found.entries)
    assert (200, "limited", "full") == (status, told["status"], told["store"])
    assert told["why"].startswith("The disk that holds the store is full")


def test_a_damaged_database(tmp_path):
    """It is mended on the way, as by every other use, and the entry is still there."""
    store = filled(tmp_path)
    store.close()
    for name in ("cache.db", "cache.db-wal", "cache.db-shm"):
        if (tmp_path / name).exists():
            (tmp_path / name).write_bytes(b"not a database" * 999)

    found = condition(store)

    assert ("writable", 1) == (found.state, found.entries)
    assert store.get("a") is not None
    store.close()


def test_another_process_writes(tmp_path):
    """A store that is being written can be written, if not at this very moment."""
    store = filled(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "writable" == condition(store).state
        other.execute("ROLLBACK")
    store.close()


def test_nothing_is_written_to_find_out(tmp_path):
    """No file comes or goes, and no entry is younger for it."""

    def seen():
        with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as database:
            rows = database.execute("SELECT key, store_time, access_time FROM Cache").fetchall()
        return rows, sorted(file.name for file in tmp_path.rglob("*"))

    store = filled(tmp_path)
    store.size()  # the thread's connection
    before = seen()
    found = [condition(store) for _ in range(3)]

    assert before == seen()
    assert {"writable"} == {each.state for each in found} < {*STATES}
    assert {1} == {each.entries for each in found}
    assert all(each.size > 24 for each in found)
    store.close()


def test_the_store_is_looked_at_once_in_a_while(tmp_path, monkeypatch):
    """However many ask, and whenever."""
    looks = []
    engine = Engine(Store(tmp_path))
    monkeypatch.setattr(
        watch_module, "condition", lambda store: looks.append(store) or Condition("writable", 0, 0)
    )
    watch = Watch(lambda: engine, kept=3600)
    threads = [threading.Thread(target=watch.store) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [engine.store] == looks
    engine.store.close()


def test_whatever_is_amiss_has_its_sentence():
    """One for each state but those that are well, each a sentence without a place on the disk."""
    assert {*STATES, "none", "alive", "ended"} - {"writable", "none", "alive"} == {*WHY}
    assert all(why.endswith(".") and "/" not in why for why in WHY.values())


def test_a_disk_that_hangs(tmp_path, monkeypatch):
    """The server says so instead of hanging with it, and asks the disk once only."""
    hanging, looks = threading.Event(), []

    def make():
        looks.append(1)
        hanging.wait()
        raise BadRequest("too late")

    monkeypatch.setattr(watch_module, "PATIENCE", 0.05)
    with health_of(make) as ask:
        assert [503, 503] == [ask()[0] for _ in range(2)]
        assert [1] == looks
        hanging.set()
