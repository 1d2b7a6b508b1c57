"""The store gives back what was put in, or nothing: never code, never another's file.

Also on a full disk, in a read-only or vanished directory, beside a damaged database.
"""

import errno
import hashlib
import json
import pickle
import random
import sqlite3
from pathlib import Path

import diskcache
import numpy as np
import platformdirs
import pytest
from safetensors.numpy import save

from poskernel_core.common.errors import BadRequest, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.storage import store as store_module
from poskernel_core.storage.encoding import MAX_HEADER, decode, read_header
from poskernel_core.storage.store import Store
from tests.support import ROOT
from tests.support.disks import file_of, fill, read_only, small_disk

KEY = "0123456789abcdef-" + 64 * "a"
OTHER = "0123456789abcdef-" + 64 * "b"
LARGE = {"kernel": np.arange(2 * 3 * 11_003, dtype=np.float32).reshape(2, 3, 11_003)}
SMALL = {"kind": np.array([[0, 2, 1]], dtype=np.int64)}


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    yield made
    made.close()


def rows(store, statement, *values):
    """Write straight into the database, as somebody who may write the directory could."""
    with sqlite3.connect(store.directory / "cache.db") as database:
        changed = database.execute(statement, values).rowcount
    database.close()
    assert 1 == changed


class Trap:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


@pytest.mark.parametrize("arrays", [LARGE, SMALL, {}, {"one": np.array(0.5)}])
def test_round_trip(store, arrays):
    header = {"model": "gpt2", "note": "Ünïcode", "scales": [1.0, None], "nested": {"a": [1, 2]}}

    store.put(KEY, header, arrays)

    again = Store(store.directory)
    for one in (store, again):
        found_header, found = one.get(KEY)
        assert header == found_header
        assert list(arrays) == list(found)
        for name, array in arrays.items():
            assert (array.dtype, array.shape) == (found[name].dtype, found[name].shape)
            np.testing.assert_array_equal(array, found[name])
    again.close()


def test_replaced_missing_and_dropped(store):
    store.put(KEY, {"n": 1}, LARGE)
    store.put(KEY, {"n": 2}, {"turned": LARGE["kernel"].T, "every third": np.arange(11)[::3]})
    header, found = store.get(KEY)
    assert {"n": 2} == header
    np.testing.assert_array_equal(LARGE["kernel"].T, found["turned"])
    np.testing.assert_array_equal([0, 3, 6, 9], found["every third"])
    assert [KEY] == list(store.keys())
    store.drop(KEY)
    store.drop("never there")
    assert store.get(KEY) is store.get("never there") is None

    for key in ("aa-1", "aa-2", "ab-1"):
        store.put(key, {}, SMALL)
    assert ["aa-1", "aa-2"] == sorted(store.keys("aa-"))
    assert 3 == len(list(store.keys()))


def test_default_directory(monkeypatch, tmp_path):
    """`POSKERNEL_CACHE` names it; without that, `cache` in a checkout, else the user's cache."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    assert tmp_path == default_directory()

    monkeypatch.delenv("POSKERNEL_CACHE")
    assert ROOT / "cache" == default_directory()

    monkeypatch.setattr("poskernel_core.common.folders.CHECKOUT", ("no such file",))
    assert platformdirs.user_cache_path() in default_directory().parents
    assert "poskernel" in default_directory().parts


def value_file(store):
    (file,) = store.directory.rglob("*.val")
    return file


@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5])
def test_a_pickle_is_refused(store, tmp_path, mode):
    """In the database and in a file, whatever the database says of it."""
    trap = tmp_path / "trap"
    evil = pickle.dumps(Trap(trap))
    for in_file in (False, True):
        store.put(KEY, {}, SMALL)
        if in_file:
            value_file(store).write_bytes(evil)
            rows(store, "UPDATE Cache SET mode = ?", mode)
        else:
            rows(store, "UPDATE Cache SET mode = ?, filename = NULL, value = ?", mode, evil)
        assert store.get(KEY) is None
        assert [] == list(store.keys())
        for file in store.directory.rglob("*.val"):  # the row that named it is gone
            file.unlink()
    store.put(KEY, {"n": 2}, SMALL)
    assert {"n": 2} == store.get(KEY)[0]
    assert not trap.exists()


def test_a_key_is_text(store, tmp_path):
    """Other keys, which would be pickled, are refused in writing and never found in reading."""
    for key in (5, 0.5, b"bytes", ("a", "b"), None):
        with pytest.raises(Exception, match="key"):
            store.put(key, {}, SMALL)
    trap = tmp_path / "trap"
    store.put("poisoned", {}, SMALL)
    store.put(KEY, {}, SMALL)
    statement = "UPDATE Cache SET key = ?, raw = 0 WHERE key = 'poisoned'"
    rows(store, statement, pickle.dumps(Trap(trap)))
    assert [KEY] == list(store.keys())
    assert not trap.exists()


def test_a_file_outside_the_directory(store, tmp_path):
    store.put(KEY, {}, LARGE)
    outside = tmp_path / "outside.val"
    value_file(store).rename(outside)
    rows(store, "UPDATE Cache SET filename = ?", "../outside.val")

    assert store.get(KEY) is None
    store.put(KEY, {}, SMALL)
    rows(store, "UPDATE Cache SET filename = ?, mode = 2, value = NULL", str(outside))
    assert store.get(KEY) is None
    store.drop(KEY)
    assert outside.exists()


def test_least_recently_used_go_first(tmp_path):
    """Above the limit the entries go that nobody read for longest; the store stays near it."""
    arrays, limit = {"kernel": np.zeros((13, 1009))}, 3 * 2**20
    store = Store(tmp_path, limit_gb=limit / 2**30)
    store.put("wanted", {}, arrays)
    for number in range(101):
        store.put(str(number), {}, arrays)
        assert store.get("wanted") is not None

    assert store.get("0") is None
    assert store.get("100") is not None
    assert limit / 2 < sum(store.keys().values()) < 1.2 * limit
    store.close()


def flipped(place):
    def flip(file):
        data = bytearray(file.read_bytes())
        data[place] ^= 1
        file.write_bytes(data)

    return flip


DAMAGES = {
    **{f"byte {place} flipped": flipped(place) for place in (0, 31, 32, 40, 5000, -1)},
    **{
        f"cut to {size}": lambda file, size=size: file.write_bytes(file.read_bytes()[:size])
        for size in (0, 31, 5000)
    },
    "no file": lambda file: file.unlink(),
    "a folder in its place": lambda file: (file.unlink(), file.mkdir()),
    "whole, and no entry": lambda file: file.write_bytes(hashlib.sha256(b"x").digest() + b"x"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_what_cannot_be_read_is_dropped(store, how):
    store.put(KEY, {}, LARGE)
    other = Store(store.directory)
    assert other.has(KEY)
    DAMAGES[how](value_file(store))

    assert store.get(KEY) is None
    assert not store.has(KEY)
    assert not other.has(KEY)
    assert [] == list(store.keys())
    store.put(KEY, {"n": 2}, LARGE)
    assert {"n": 2} == store.get(KEY)[0] == other.get(KEY)[0]
    other.close()


def test_a_file_that_cannot_be_read_now_is_kept(store, monkeypatch):
    """A process with too many open files is no damage; `has` and `get` agree meanwhile, too."""
    store.put(KEY, {}, LARGE)
    with monkeypatch.context() as patch:

        def refuse(*_, **__):
            raise OSError(errno.EMFILE, "Too many open files")

        patch.setattr(diskcache.Disk, "fetch", refuse)
        assert store.get(KEY) is None
        assert not store.has(KEY)
    assert store.has(KEY)
    assert store.get(KEY) is not None


def test_what_was_written_anew_meanwhile_is_kept(store, monkeypatch):
    """An entry that another process replaces while its damage is looked at is not dropped."""
    store.put(KEY, {}, LARGE)
    value_file(store).write_bytes(b"damage")
    other, seen = Store(store.directory), []

    def replaced_meanwhile(data, key):
        found = decode(data, key)
        if not seen:
            seen.append(found)
            other.put(KEY, {"n": 2}, LARGE)
        return found

    monkeypatch.setattr(store_module, "decode", replaced_meanwhile)

    assert store.get(KEY) is None
    assert [None] == seen
    assert {"n": 2} == store.get(KEY)[0]
    other.close()


def test_an_entry_under_anothers_key(store):
    store.put(KEY, {"n": 1}, LARGE)
    data = store.get_bytes(KEY)
    store.put_bytes(OTHER, data)

    assert store.get(OTHER) is None
    assert not store.has(OTHER)
    blob = save({}, metadata={"header": json.dumps({"n": 2})})
    store.put_bytes(OTHER, hashlib.sha256(blob).digest() + blob)
    assert store.get(OTHER) is None


KEYS = [f"{number:016x}-{number:064x}" for number in range(23)]


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


@pytest.mark.parametrize("start", [b"\0" * 39, b"\0" * 32 + (MAX_HEADER + 1).to_bytes(8, "little")])
def test_a_header_that_is_cut_off_or_too_long_is_not_read(start):
    """The header of a text would be read for nothing."""
    asked = []

    def read(count):
        asked.append(count)
        return start

    assert read_header(read) is None
    assert [40] == asked
