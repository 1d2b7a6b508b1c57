"""The store on a full disk, in a read-only or vanished directory, beside a damaged database."""

import os
import random
import sqlite3

import numpy as np
import pytest
from filelock import FileLock

from poskernel_core.common.errors import BadRequest, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.storage.store import Store
from tests.support.disks import fill, read_only, small_disk

KEYS = [f"{number:016x}-{number:064x}" for number in range(23)]
LARGE = {"kernel": np.arange(11_003, dtype=np.float32)}


def value(number):
    """What lies under a key: some small, some large."""
    return {"kernel": np.full((7, 1009 if number % 2 else 3), number, dtype=np.float64)}


def filled(directory):
    """A closed store with a value under every key."""
    store = Store(directory)
    for number, key in enumerate(KEYS):
        store.put(key, {"number": number}, value(number))
    store.close()
    with sqlite3.connect(directory / "cache.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def whole(store, keys=KEYS):
    """How many keys are there; each that is has its own value."""
    found = 0
    for number, key in enumerate(keys):
        entry = store.get(key)
        if entry is not None:
            assert {"number": number} == entry[0]
            np.testing.assert_array_equal(value(number)["kernel"], entry[1]["kernel"])
            found += 1
    return found


def test_a_full_disk(tmp_path):
    """Nothing more is written, in one sentence; all is read; with room again, all goes on."""
    with small_disk(tmp_path / "disk", 3) as disk:
        filled(disk / "store")
        store = Store(disk / "store")
        filler = fill(disk)
        before = sorted(disk.rglob("*.val"))

        with pytest.raises(NoSpace, match=r"^No space is left .* MB are needed, .* are free; make"):
            store.put("new", {}, LARGE)
        with pytest.raises(NoSpace, match="20 MB are needed"):
            store.make_room(20_000_000)
        assert before == sorted(disk.rglob("*.val"))
        assert len(KEYS) == whole(store) == whole(Store(disk / "store"))
        assert store.get("new") is None

        filler.unlink()
        store.put("new", {}, LARGE)
        assert store.get("new") is not None
        store.close()


def test_an_empty_store_on_a_full_disk(tmp_path):
    """A store that cannot even be made says why; made with room, it works."""
    with small_disk(tmp_path / "disk", 1) as disk:
        filler = fill(disk)
        with pytest.raises(Exception, match="No space is left"):
            Store(disk / "store")
        filler.unlink()
        Store(disk / "store").put("new", {}, LARGE)


def test_a_directory_that_is_closed_under_an_open_store(tmp_path):
    """Room is refused before any work, though the database was opened to be written."""
    filled(tmp_path / "store")
    store = Store(tmp_path / "store")
    store.make_room(0)
    with read_only(tmp_path / "store"):
        with pytest.raises(ReadOnlyStore, match=r"cannot be written: what is computed already"):
            store.make_room(0)
        assert len(KEYS) == whole(store)
    store.make_room(0)
    store.close()


def test_a_directory_that_never_could_be_written(tmp_path):
    """There is nothing to show: one sentence, which says what to do."""
    (tmp_path / "store").mkdir()
    with (
        read_only(tmp_path / "store") as directory,
        pytest.raises(BadRequest, match=r"^The store at '.*' cannot be used, as nothing can be"),
    ):
        Store(directory)


def test_a_file_in_place_of_the_directory(tmp_path):
    """It is left as it is, and one sentence says so."""
    (tmp_path / "store").write_text("mine")
    with pytest.raises(BadRequest, match=r"to be a directory for the store, found a file at '"):
        Store(tmp_path / "store")
    assert "mine" == (tmp_path / "store").read_text()


def test_a_directory_below_one_that_may_not_be_searched(tmp_path, monkeypatch):
    """One sentence, and no traceback."""

    def is_file(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "is_file", is_file)
    with pytest.raises(BadRequest, match=r"^Cannot look for '.*store': Permission denied"):
        Store(tmp_path / "store")


def test_a_directory_that_cannot_be_written(tmp_path):
    """What is stored is served, through several openings; nothing is written, and that is said."""
    filled(tmp_path / "store")
    with read_only(tmp_path / "store") as directory:
        store = Store(directory)

        assert len(KEYS) == whole(store)
        assert store.has(KEYS[0])
        assert not store.has("new")
        assert KEYS == list(store.keys())
        with pytest.raises(ReadOnlyStore, match=r"cannot be written: what is computed already"):
            store.put("new", {}, LARGE)
        with pytest.raises(ReadOnlyStore):
            store.make_room(0)
        with pytest.raises(ReadOnlyStore), store.lock("work", lambda: None):
            pass
        store.drop(KEYS[0])
        assert len(KEYS) == whole(store)
    store.put("new", {}, LARGE)
    assert store.get("new") is not None
    store.close()


def test_damage_where_nothing_can_be_dropped(tmp_path):
    """It is missing all the same, for `get` and for `has`, until it can be written anew."""
    filled(tmp_path / "store")
    opened = Store(tmp_path / "store")
    for file in (tmp_path / "store").rglob("*.val"):
        if file.name.startswith(KEYS[0]):
            file.write_bytes(b"damage")
    with read_only(tmp_path / "store") as directory:
        for store in (opened, Store(directory)):
            assert store.get(KEYS[0]) is None
            assert not store.has(KEYS[0])
            assert store.has(KEYS[1])
            assert len(KEYS) - 1 == whole(store)
    Store(tmp_path / "store").put(KEYS[0], {"number": 0}, value(0))
    assert opened.has(KEYS[0])
    opened.close()


def test_the_directory_vanishes(tmp_path):
    """A store whose directory is deleted under it is empty, and takes new values."""
    filled(tmp_path / "store")
    store = Store(tmp_path / "store")
    assert len(KEYS) == whole(store)
    (tmp_path / "store").rename(tmp_path / "gone")

    assert 0 == whole(store)
    store.put(KEYS[0], {"number": 0}, value(0))
    assert 1 == whole(store)
    assert [KEYS[0]] == list(Store(tmp_path / "store").keys())
    store.close()


REPLACED = {
    "a file": lambda place: place.write_text("mine"),
    "a link to a file": lambda place: place.symlink_to(__file__),
    "a link that leads nowhere": lambda place: place.symlink_to("nowhere"),
}


@pytest.mark.parametrize("what", REPLACED)
def test_something_else_in_place_of_the_directory(tmp_path, what):
    """Under an open store one sentence says so, without a name; nothing is found or written."""
    filled(tmp_path / "store")
    store = Store(tmp_path / "store")
    assert len(KEYS) == whole(store)
    (tmp_path / "store").rename(tmp_path / "gone")
    REPLACED[what](tmp_path / "store")

    assert 0 == whole(store)
    assert not store.has(KEYS[0])

    def hold():
        with store.lock("work", lambda: None):
            pass

    for act in (
        lambda: store.put("new", {}, LARGE),
        lambda: store.make_room(0),
        lambda: list(store.keys()),
        hold,
    ):
        with pytest.raises(StoreFailed, match=r"^The store's directory was removed, or something"):
            act()
    with pytest.raises(
        BadRequest, match=r"to be a directory for the store, found a (file|link th)"
    ):
        Store(tmp_path / "store")
    store.close()


def test_the_directory_vanishes_while_a_lock_is_waited_for(tmp_path, monkeypatch):
    """It is made again, and the lock is had."""
    store, acquire, waited = Store(tmp_path / "store"), FileLock.acquire, []

    def vanished_at_first(lock, timeout):
        if not waited:
            (tmp_path / "store").rename(tmp_path / "gone")
            raise FileNotFoundError(2, "No such file or directory", lock.lock_file)
        return acquire(lock, timeout=timeout)

    monkeypatch.setattr(FileLock, "acquire", vanished_at_first)
    with store.lock("work", lambda: waited.append(1)):
        assert (tmp_path / "store" / "locks" / "work.lock").exists()
    assert [1] == waited
    store.close()


def damage(file, how, seed):
    """Break a database: cut it, overwrite a piece of it, or put something else in its place."""
    data, chance = bytearray(file.read_bytes()), random.Random(seed)
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = data[:0]
        for value_file in file.parent.rglob("*.val"):
            os.utime(value_file, (1e9, 1e9))
    elif how == "text":
        data = bytearray(b"not a database at all\n" * 999)
    elif how == "schema":  # a byte of the schema that is no UTF-8
        place = data.index(b" filename TEXT")
        data[place + 1 + seed] = 0xFF
    else:
        for _ in range(40):
            data[chance.randrange(100, len(data))] ^= 0x5A
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["cut", "empty", "text", "schema", "bytes"])
def test_a_damaged_database(tmp_path, capfd, how, seed):
    """It is set aside and made anew from the values' files, which is said once; all goes on."""
    filled(tmp_path)
    damage(tmp_path / "cache.db", how, seed)

    store = Store(tmp_path)

    kept = whole(store)
    if how != "bytes":  # some changed bytes do not matter, some cost a row
        assert len(KEYS) == kept
        words = "The store's list of results was damaged and has been made anew; {} results were"
        assert store.notice.startswith(words.format(len(KEYS)))
        assert 1 == capfd.readouterr().err.count(store.notice)
        assert [file for file in tmp_path.iterdir() if ".damaged-" in file.name]
        assert Store(tmp_path).notice is None
    store.put("new", {}, LARGE)
    assert store.get("new") is not None
    store.close()


def test_damage_while_open(tmp_path):
    """Damage under an open store is mended at the next use, in two processes' stores alike."""
    filled(tmp_path)
    stores = [Store(tmp_path), Store(tmp_path)]
    assert [len(KEYS)] * 2 == [whole(store) for store in stores]
    with sqlite3.connect(tmp_path / "cache.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    for store in stores:
        store.close()
    damage(tmp_path / "cache.db", "cut", 0)

    for number, store in enumerate(stores):
        store.put(f"new {number}", {}, LARGE)
        assert len(KEYS) == whole(store)
    for number, store in enumerate(stores):
        assert store.get(f"new {1 - number}") is not None
        store.close()
    assert 1 == len([file for file in tmp_path.iterdir() if file.name.startswith("cache.db.dam")])


def test_a_file_where_the_locks_go(tmp_path):
    """It is said what is in the way."""
    store = Store(tmp_path)
    (tmp_path / "locks").write_text("x")

    with pytest.raises(StoreFailed, match="directory called 'locks'"), store.lock("w", str):
        pass
    store.close()
