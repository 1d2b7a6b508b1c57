"""The store on a full disk, in a read-only or vanished directory, beside a damaged database."""

import random
import sqlite3

import numpy as np
import pytest

from poskernel_core.common.errors import BadRequest, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.storage.store import Store
from tests.support.disks import file_of, fill, read_only, small_disk

KEYS = [f"{number:016x}-{number:064x}" for number in range(23)]
LARGE = {"kernel": np.arange(11_003, dtype=np.float32)}


def value(number):
    return {"kernel": np.full((7, 1009 if number % 2 else 3), number, dtype=np.float64)}


def filled(directory):
    store = Store(directory)
    for number, key in enumerate(KEYS):
        store.put(key, {"number": number}, value(number))
    store.close()
    with sqlite3.connect(directory / "cache.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # nothing is left in its log
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
    with small_disk(tmp_path / "disk", 3) as disk:
        filler = fill(disk)
        with pytest.raises(BadRequest, match=r"cannot be used \(.*(No space|is full)"):
            Store(disk / "store")
        filler.unlink()
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


def test_a_directory_that_never_could_be_written(tmp_path):
    (tmp_path / "store").mkdir()
    with (
        read_only(tmp_path / "store") as directory,
        pytest.raises(BadRequest, match=r"store' cannot be used .*POSKERNEL_CACHE"),
    ):
        Store(directory)


@pytest.mark.parametrize("open_before", [False, True])
def test_a_directory_that_cannot_be_written(tmp_path, open_before):
    filled(tmp_path / "store")
    opened = Store(tmp_path / "store") if open_before else None
    with read_only(tmp_path / "store") as directory:
        store = opened or Store(directory)

        assert len(KEYS) == whole(store)
        assert store.has(KEYS[0])
        assert not store.has("new")
        assert KEYS == sorted(store.keys())
        with pytest.raises(ReadOnlyStore):
            store.put("new", {}, LARGE)
        with pytest.raises(ReadOnlyStore, match=r"cannot be written: what is computed already"):
            store.make_room(0)
        with pytest.raises(ReadOnlyStore), store.lock("work", lambda: None):
            pass
        if not open_before:  # files that were open before can still be written
            store.drop(KEYS[0])
        assert len(KEYS) == whole(store)
    store.put("new", {}, LARGE)
    assert store.get("new") is not None
    store.close()


def test_damage_where_nothing_can_be_dropped(tmp_path):
    filled(tmp_path / "store")
    opened = Store(tmp_path / "store")
    file_of(tmp_path / "store", KEYS[0]).write_bytes(b"damage")
    with read_only(tmp_path / "store") as directory:
        for store in (Store(directory), opened):  # the second can still write
            assert store.get(KEYS[0]) is None
            assert not store.has(KEYS[0])
            assert store.has(KEYS[1])
            assert len(KEYS) - 1 == whole(store)
    Store(tmp_path / "store").put(KEYS[0], {"number": 0}, value(0))
    assert opened.has(KEYS[0])
    opened.close()


def test_the_directory_vanishes(tmp_path):
    filled(tmp_path / "store")
    store = Store(tmp_path / "store")
    assert len(KEYS) == whole(store)
    (tmp_path / "store").rename(tmp_path / "gone")

    assert 0 == whole(store)
    store.put(KEYS[0], {"number": 0}, value(0))
    assert 1 == whole(store)
    assert [KEYS[0]] == list(Store(tmp_path / "store").keys())
    store.close()


@pytest.mark.parametrize("what", ["a file", "a link that leads nowhere"])
def test_something_else_in_place_of_the_directory(tmp_path, what):
    """One sentence says so: under an open store without its name, which visitors would read."""
    place = tmp_path / "store"
    filled(place)
    store = Store(place)
    place.rename(tmp_path / "gone")
    place.write_text("mine") if what == "a file" else place.symlink_to("nowhere")

    assert 0 == whole(store)
    assert not store.has(KEYS[0])
    for act in (
        lambda: store.put("new", {}, LARGE),
        lambda: store.make_room(0),
        lambda: list(store.keys()),
        lambda: store.lock("work", lambda: None).__enter__(),
    ):
        with pytest.raises(StoreFailed, match="directory was removed, or something else") as error:
            act()
        assert str(tmp_path) not in str(error.value)
    with pytest.raises(BadRequest, match=r"store' cannot be used .*POSKERNEL_CACHE"):
        Store(place)
    assert not place.is_dir()
    store.close()


def damage(directory, how, seed=0):
    """Break a database: cut it, overwrite a piece, put something else in its place, delete it."""
    file, chance = directory / "cache.db", random.Random(seed)
    data = bytearray(file.read_bytes())
    if how == "gone":
        file.unlink()
        return
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = data[:0]
    elif how == "text":
        data = bytearray(b"not a database at all\n" * 999)
    elif how == "schema":  # a byte of the schema that is no UTF-8
        data[data.index(b" filename TEXT") + 1] = 0xFF
    else:
        for _ in range(40):
            data[chance.randrange(100, len(data))] ^= 0x5A
    file.write_bytes(data)


@pytest.mark.parametrize("how", ["cut", "empty", "text", "schema", "gone", *range(3)])
def test_a_damaged_database(tmp_path, capfd, how):
    """It is set aside with its files, which is said once; the notes stay, and all goes on."""
    filled(tmp_path)
    damage(tmp_path, how, how)
    (tmp_path / "notes.json").write_text("[]")

    store = Store(tmp_path)

    kept = whole(store)
    assert "[]" == (tmp_path / "notes.json").read_text()
    if isinstance(how, str):  # some changed bytes do not matter, some cost a row
        assert 0 == kept == len(store.keys())
        assert "set aside" in store.notice
        assert 1 == capfd.readouterr().err.count(store.notice)
        assert Store(tmp_path).notice is None
        assert len(KEYS) == len([*(tmp_path / "damaged").rglob("*.val")])
    store.put("new", {}, LARGE)
    assert store.get("new") is not None
    assert Store(tmp_path).get("new") is not None
    store.close()


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_damage_while_open(tmp_path, how):
    """Two processes notice it; the second keeps what the first has written since."""
    filled(tmp_path)
    stores = [Store(tmp_path), Store(tmp_path)]
    assert [len(KEYS)] * 2 == [whole(store) for store in stores]
    for store in stores:
        store.close()
    damage(tmp_path, how)

    for number, store in enumerate(stores):
        store.put(f"new {number}", {}, LARGE)
    for store in stores:
        assert {"new 0", "new 1"} == set(store.keys())
        assert store.get("new 0") is not None
        assert store.get("new 1") is not None
        store.close()


def test_a_store_of_version_1_0_0(tmp_path):
    """Its files are one folder deep and named after their keys: read, replaced and removed."""
    filled(tmp_path)
    old = []
    for number, key in enumerate(KEYS):
        name = f"{number:02x}/{key}.{16 * 'f'}.val"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        file_of(tmp_path, key).rename(tmp_path / name)
        old.append(tmp_path / name)
        with sqlite3.connect(tmp_path / "cache.db") as database:
            database.execute("UPDATE Cache SET filename = ? WHERE key = ?", (name, key))
        database.close()

    store = Store(tmp_path)

    assert len(KEYS) == whole(store)
    store.put(KEYS[0], {"number": 0}, value(0))
    store.drop(KEYS[1])
    assert len(KEYS) - 1 == whole(store)
    assert old[2:] == [file for file in old if file.exists()]
    store.close()
