"""`export` and `import`: everything of a model as one file, whole or not at all."""

import json
import zipfile

import numpy as np
import pytest

from poskernel_core.common.errors import BadArchive, BadRequest
from poskernel_core.common.specs import SCHEMA, model_prefix
from poskernel_core.models import catalog
from poskernel_core.storage.archive import export_model, import_archive, read_archive
from poskernel_core.storage.encoding import encode
from poskernel_core.storage.store import Store

VALUES = {"kernel": np.arange(3 * 11, dtype=np.float32).reshape(3, 11)}


@pytest.fixture
def located(model_dirs):
    """The model whose results are moved."""
    return catalog.locate(str(model_dirs["gpt2"]))


@pytest.fixture
def keys(located):
    """Three keys of the model's."""
    return [model_prefix(located.spec.fingerprint) + 64 * digit for digit in "012"]


@pytest.fixture
def store(tmp_path, keys):
    """A store with three entries of the model and one of another."""
    made = Store(tmp_path / "from")
    for number, key in enumerate([*keys, model_prefix("another") + 64 * "0"]):
        made.put(key, {"number": number}, VALUES)
    yield made
    made.close()


@pytest.fixture
def target(tmp_path):
    """An empty store."""
    made = Store(tmp_path / "to")
    yield made
    made.close()


def test_round_trip(store, target, located, keys, tmp_path):
    """Another store holds the same entries afterwards, and only this model's."""
    file = tmp_path / "results.zip"

    assert 3 == export_model(store, located, file)
    assert (located.spec.name, 3) == import_archive(target, file)

    assert keys == sorted(target.keys())
    for key in keys:
        assert store.get_bytes(key) == target.get_bytes(key)
    assert {"results.zip", "from", "to"} == {path.name for path in tmp_path.iterdir()}


def test_nothing_cached(target, located, tmp_path):
    """There is nothing to export, and no file appears."""
    with pytest.raises(BadRequest, match="Nothing is cached"):
        export_model(target, located, tmp_path / "results.zip")

    assert not (tmp_path / "results.zip").exists()


def test_where_no_file_can_be_written(store, located, tmp_path):
    """A folder that does not exist is named in the message."""
    with pytest.raises(BadRequest, match="nowhere"):
        export_model(store, located, tmp_path / "nowhere" / "results.zip")


def test_damaged_entries_stay_behind(store, target, located, keys, tmp_path):
    """An entry that is damaged in the store is not exported."""
    store.put_bytes(keys[0], b"x" * 100)

    export_model(store, located, tmp_path / "results.zip")

    assert 2 == import_archive(target, tmp_path / "results.zip")[1]


def archive(path, entries):
    """Write a zip of named texts or bytes."""
    with zipfile.ZipFile(path, "w") as made:
        for name, data in entries.items():
            made.writestr(name, data)
    return path


KEY = 16 * "a" + "-" + 64 * "b"
GOOD = encode(KEY, {"number": 1}, VALUES)
ABOUT = json.dumps({"schema": SCHEMA, "model": {"name": "gpt2"}})
BAD = {
    "no manifest": {KEY: GOOD},
    "manifest is no JSON": {"poskernel.json": "{", KEY: GOOD},
    "manifest is a list": {"poskernel.json": "[]", KEY: GOOD},
    "manifest without schema": {"poskernel.json": "{}", KEY: GOOD},
    "manifest without model": {"poskernel.json": '{"schema": 1}', KEY: GOOD},
    "another layout": {"poskernel.json": '{"schema": 99, "model": {"name": "m"}}', KEY: GOOD},
    "an older layout": {"poskernel.json": '{"schema": 0, "model": {"name": "m"}}', KEY: GOOD},
    "an entry by another name": {"poskernel.json": ABOUT, KEY: GOOD, "../../evil": GOOD},
    "a second entry is cut": {"poskernel.json": ABOUT, KEY: GOOD, KEY[:-1] + "c": GOOD[:-1]},
    "a second entry is changed": {
        "poskernel.json": ABOUT,
        KEY: GOOD,
        KEY[:-1] + "c": GOOD[:-1] + b"x",
    },
    "an entry is empty": {"poskernel.json": ABOUT, KEY: b""},
    "an entry under another's key": {"poskernel.json": ABOUT, KEY: GOOD, KEY[:-1] + "c": GOOD},
}


@pytest.mark.parametrize("case", BAD)
def test_what_export_never_writes(target, tmp_path, case):
    """It is refused in one sentence, and not even its good entries are written."""
    file = archive(tmp_path / "results.zip", BAD[case])

    with pytest.raises(BadArchive, match=r"results\.zip"):
        import_archive(target, file)

    assert [] == list(target.keys())


def test_another_layout(target, tmp_path):
    """The sentence says which layout it has, which is read, and what to do."""
    about = json.dumps({"schema": SCHEMA - 1, "model": {"name": "gpt2"}})
    file = archive(tmp_path / "results.zip", {"poskernel.json": about, KEY: GOOD})

    with pytest.raises(BadArchive) as error:
        import_archive(target, file)
    assert (
        f"'results.zip' has layout {SCHEMA - 1}, this version reads {SCHEMA}: export it again with "
        "this version; nothing was imported."
    ) == str(error.value)


def test_no_archive_at_all(target, tmp_path):
    """A missing file, a folder and a text file are refused."""
    (tmp_path / "letter.txt").write_text("Dear Sir or Madam")

    for name in ("nowhere.zip", "to", "letter.txt"):
        with pytest.raises(BadArchive, match=name):
            import_archive(target, tmp_path / name)


def test_a_cut_archive(store, target, located, tmp_path):
    """A download that broke off is refused, wherever it broke."""
    file = tmp_path / "results.zip"
    export_model(store, located, file)
    whole = file.read_bytes()

    for length in range(0, len(whole), 211):
        file.write_bytes(whole[:length])
        with pytest.raises(BadArchive):
            import_archive(target, file)
    assert [] == list(target.keys())


def test_a_changed_byte(store, target, located, keys, tmp_path):
    """With any one byte changed it is refused, or what is imported is what was exported."""
    file = tmp_path / "results.zip"
    export_model(store, located, file)
    whole = file.read_bytes()

    # Every byte of the directory at the end, and one in seven before it.
    directory = len(whole) - 700
    for place in [*range(0, directory, 7), *range(directory, len(whole))]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            import_archive(target, file)
        except BadArchive:
            continue
        for key in target.keys():  # noqa: SIM118 - a store is no mapping
            assert store.get_bytes(key) == target.get_bytes(key)


def test_read_in_place(tmp_path):
    """One by one, without an import: an entry that is not whole is as good as missing."""
    changed, lacking = KEY[:-1] + "c", KEY[:-1] + "d"
    whole = encode(KEY, {"number": 7}, VALUES)
    entries = {KEY: whole, changed: whole[:-1] + bytes([whole[-1] ^ 1])}
    file = archive(tmp_path / "results.zip", {"poskernel.json": ABOUT, **entries})

    with read_archive(file) as entries:
        assert [KEY, changed] == sorted(entries.keys())
        assert entries.get(KEY) is not None
        assert entries.get(changed) is None
        assert entries.get(lacking) is None
