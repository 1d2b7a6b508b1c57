"""`export` and `import`: a model as one file, whole or not at all; and archives of strangers."""

import copy
import hashlib
import json
import os
import tracemalloc
import zipfile
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from safetensors.numpy import save

from poskernel_core.cli import main as cli
from poskernel_core.common.errors import BadArchive, BadRequest
from poskernel_core.common.specs import SCHEMA, CorpusSpec, ModelSpec, model_prefix
from poskernel_core.models import catalog
from poskernel_core.models.stored import MANIFEST, Shown
from poskernel_core.storage import archive, view
from poskernel_core.storage.archive import Archive, export_entries, export_model, import_archive
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


@pytest.mark.parametrize(
    ("name", "called", "lacking"),
    [
        ("mine", "mine", ""), ("mine", "other", ""), ("mine", "mine", "attached"),
        ("mine", "mine", "geometry"), *((n, n, "") for n in ("demo-gpt2", "gpt2", "a/b", "/a/b")),
    ],
)  # fmt: skip
def test_an_object_has_a_name_of_its_own(store, target, located, tmp_path, name, called, lacking):
    """Else whoever asks for a bundled model, or a directory, would get the results of another."""
    print_, file = located.spec.fingerprint, tmp_path / "results.zip"
    first = Shown(
        context=11, windows=3, corpus=CorpusSpec(), start_token=True, dtype="float32", queries=(),
        skips=(),
    )  # fmt: skip
    versions = {"versions": {"1": {"fingerprint": print_}}, "word": " the"}
    told = ModelSpec(name=called, revision="1", fingerprint=print_)
    described = view.about(replace(located, spec=told), first) | {"attached": versions}
    described.pop(lacking, None)
    with patch.object(archive, "description", return_value=described):
        export_entries(store, [*store.keys()], ModelSpec(name=name, fingerprint=print_), file)
    if name == called == "mine" and not lacking:
        assert ("mine", 4) == import_archive(target, file)
        return
    with pytest.raises(BadArchive, match="is not a file that 'export' wrote"):
        import_archive(target, file)
    assert [] == [*target.keys()]
    assert "" == catalog.locate("demo-gpt2").away


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


def of(model):
    return json.dumps({"schema": SCHEMA, "model": model})


ABOUT = of({"name": "gpt2"})
KEYS = [16 * "a" + "-" + 64 * digit for digit in "bcdef"]
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
BOMB_MB = 60


def entry(header='{"number": 1}', size=11, key=KEYS[0]):
    about = {"header": header, "key": key}
    blob = save({"kernel": np.zeros(size, np.float32)}, metadata=about)
    return hashlib.sha256(blob).digest() + blob


GOOD = entry()


@pytest.fixture
def small(tmp_path):
    made = Store(tmp_path / "store", limit_gb=1 / 1024)
    yield made
    made.close()


def write(path, *entries):
    with zipfile.ZipFile(path, "w") as made:
        for name, data, kind in entries:
            made.writestr(name, data, kind)
    return path


def about(text=ABOUT):
    return MANIFEST, text, STORED


def good(number=0):
    return KEYS[number], entry(key=KEYS[number]), STORED


def bomb(path):
    """A manifest of some ten kilobytes that inflates to sixty megabytes."""
    with zipfile.ZipFile(path, "w", DEFLATED) as made:
        with made.open(MANIFEST, "w") as manifest:
            manifest.write(ABOUT.encode())
            for _ in range(BOMB_MB):
                manifest.write(b" " * 2**20)
        made.writestr(KEYS[0], GOOD, STORED)
    return path


def overlapping(path):
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(*about()[:2])
        made.writestr(KEYS[0], entry(size=5000))
        for key in KEYS[1:]:
            again = copy.copy(made.getinfo(KEYS[0]))
            again.filename = key
            made.filelist.append(again)
    return path


def twice(path):
    with pytest.warns(UserWarning, match="Duplicate"):
        return write(path, about(), good(), good())


def letter(path):
    path.write_text("Dear Sir or Madam")
    return path


def with_manifest(text):
    return lambda path: write(path, about(text), good())


def with_second(name, data, kind=STORED):
    return lambda path: write(path, about(), good(), (name, data, kind))


DEEP = "[" * 100_000 + "]" * 100_000
OTHER = json.dumps({"schema": SCHEMA - 1, "model": {"name": "m"}})
ARCHIVES = {
    "a letter": (letter, "not a file that 'export' wrote"),
    "no entries": (lambda p: write(p, about()), "no entries"),
    "no manifest": (lambda p: write(p, good()), "not a file that 'export' wrote"),
    "manifest deflated": (lambda p: write(p, (MANIFEST, ABOUT, DEFLATED), good()), "compressed"),
    "manifest of 2 MB": (with_manifest(ABOUT + " " * 2**21), "1 MB"),
    "manifest no JSON": (with_manifest("{"), "not a file"),
    "manifest a list": (with_manifest("[]"), "not a file"),
    "manifest nested": (with_manifest(DEEP), "not a file"),
    "manifest empty": (with_manifest("{}"), "not a file"),
    "another layout": (with_manifest(OTHER), f"layout {SCHEMA - 1}, this version reads {SCHEMA}"),
    "model a list": (with_manifest(of([])), "not a file"),
    "name a number": (with_manifest(of({"name": 5})), "not a file"),
    "entry deflated": (with_second(KEYS[1], entry(key=KEYS[1]), DEFLATED), "never writes"),
    "entry empty": (with_second(KEYS[1], b""), "damaged"),
    "entry cut": (with_second(KEYS[1], entry(key=KEYS[1])[:-1]), "damaged"),
    "entry changed": (with_second(KEYS[1], entry(key=KEYS[1])[:-1] + b"x"), "damaged"),
    "under another's key": (with_second(KEYS[1], GOOD), "is another entry"),
    "header a list": (with_second(KEYS[1], entry("[1]", key=KEYS[1])), "damaged"),
    "header nested": (with_second(KEYS[1], entry(DEEP, key=KEYS[1])), "damaged"),
    "a place on the disk": (with_second("../../evil", GOOD), "never writes"),
    "another name": (with_second("\x1b[2J", b""), "never writes"),
    "overlapping": (overlapping, "larger than itself"),
    "twice": (twice, "twice"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_refused(refused, tmp_path, case):
    make, words = ARCHIVES[case]

    assert words in refused("import", make(tmp_path / "bad.zip"))
    assert [] == list(Store(tmp_path / "cache").keys())


def test_a_bomb(small, tmp_path, monkeypatch):
    file = bomb(tmp_path / "bomb.zip")
    assert file.stat().st_size < 2**20
    monkeypatch.setattr(zipfile.ZipFile, "read", None)

    tracemalloc.start()
    with pytest.raises(BadArchive, match="manifest"):
        import_archive(small, file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 5 * 2**20


def test_larger_than_the_store(small, tmp_path):
    """Entries that could only push each other out are not written."""
    file = write(tmp_path / "large.zip", about(), (KEYS[0], entry(size=2**19), STORED))
    with pytest.raises(BadRequest, match="the store takes"):
        import_archive(small, file)
    assert [] == list(small.keys())


def test_what_was_checked_is_written(small, tmp_path, monkeypatch):
    file = write(tmp_path / "results.zip", about(), good(0))
    other = write(tmp_path / "other.zip", about(), good(1), ("../../evil", b"", STORED))
    get = Archive.get

    def and_replace(archive, key):
        if other.exists():
            os.replace(other, file)
        return get(archive, key)

    monkeypatch.setattr(Archive, "get", and_replace)

    assert ("gpt2", 1) == import_archive(small, file)
    assert [KEYS[0]] == list(small.keys())


def test_what_is_no_file_is_not_opened(refused, tmp_path):
    """A pipe, which would wait for ever for whoever writes to it, is refused like a folder."""
    os.mkfifo(tmp_path / "pipe")

    for name in ("pipe", ".", "nowhere.zip"):
        assert "There is no file" in refused("import", tmp_path / name)


def test_names_do_not_command_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    named = of({"name": "\x1b[2J\x07gpt2\u202e"})
    file = write(tmp_path / "named.zip", about(named), good())

    assert 0 == cli.main(["import", str(file)])
    assert "1 entry of \\x1b[2J\\x07gpt2\\u202e imported\n" == capsys.readouterr().err
