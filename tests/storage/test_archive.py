"""`export` and `import`: everything of a model as one file, whole or not at all."""

from contextlib import suppress

import numpy as np
import pytest

from poskernel_core.common.errors import BadArchive, BadRequest
from poskernel_core.common.specs import model_prefix
from poskernel_core.models import catalog
from poskernel_core.storage.archive import Archive, export_model, import_archive
from poskernel_core.storage.store import Store

VALUES = {"kernel": np.arange(3 * 11, dtype=np.float32).reshape(3, 11)}


@pytest.fixture
def located(model_dirs):
    return catalog.locate(str(model_dirs["gpt2"]))


@pytest.fixture
def keys(located):
    return [model_prefix(located.spec.fingerprint) + 64 * digit for digit in "012"]


@pytest.fixture
def store(tmp_path, keys):
    made = Store(tmp_path / "from")
    for number, key in enumerate([*keys, model_prefix("another") + 64 * "0"]):
        made.put(key, {"number": number}, VALUES)
    yield made
    made.close()


@pytest.fixture
def target(tmp_path):
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

    store.put_bytes(keys[0], b"x" * 100)  # damaged entries stay behind
    assert 2 == export_model(store, located, file)
    assert 2 == import_archive(target, file)[1]


def test_what_cannot_be_exported(store, target, located, tmp_path):
    for of, file in ((target, "results.zip"), (store, "nowhere/results.zip")):
        with pytest.raises(BadRequest, match=r"Nothing is cached|nowhere"):
            export_model(of, located, tmp_path / file)
        assert not (tmp_path / file).exists()


def test_a_damaged_archive(store, target, located, tmp_path):
    """Cut anywhere, nothing is imported; with a changed byte, nothing that is not right."""
    file = tmp_path / "results.zip"
    export_model(store, located, file)
    whole = file.read_bytes()
    for length in range(0, len(whole), 211):
        file.write_bytes(whole[:length])
        with pytest.raises(BadArchive):
            import_archive(target, file)
    assert [] == list(target.keys())

    # Every byte of the directory at the end, and one in seven before it.
    directory = len(whole) - 700
    for place in [*range(0, directory, 7), *range(directory, len(whole))]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with suppress(BadArchive):
            import_archive(target, file)
            for key in target.keys():  # noqa: SIM118 - a store is no mapping
                assert store.get_bytes(key) == target.get_bytes(key)


def test_read_in_place(store, located, keys, tmp_path):
    """One by one, without an import: an entry that is not whole is as good as missing."""
    file = tmp_path / "results.zip"
    export_model(store, located, file)
    data, damaged = file.read_bytes(), store.get_bytes(keys[1])
    file.write_bytes(data.replace(damaged, damaged[:-1] + bytes([damaged[-1] ^ 1])))

    with Archive(file) as entries:
        assert keys == list(entries.keys())
        assert entries.get(keys[0]) is not None
        assert entries.get(keys[1]) is None
        assert entries.get("lacking") is None
