"""Archives of strangers: bounded before they are read, refused in one sentence, nothing written."""

import copy
import hashlib
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save

from poskernel_core.cli import main as cli
from poskernel_core.common.errors import BadArchive, BadRequest
from poskernel_core.common.specs import SCHEMA
from poskernel_core.models.stored import MANIFEST
from poskernel_core.storage.archive import Archive, import_archive
from poskernel_core.storage.store import Store
from tests.support.strangers import refused

__all__ = ["refused"]


def of(model):
    return json.dumps({"schema": SCHEMA, "model": model})


ABOUT = of({"name": "gpt2"})
KEYS = [16 * "a" + "-" + 64 * digit for digit in "bcdef"]
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
BOMB_MB = 300


def entry(header='{"number": 1}', size=11, key=KEYS[0]):
    about = {"header": header, "key": key}
    blob = save({"kernel": np.zeros(size, np.float32)}, metadata=about)
    return hashlib.sha256(blob).digest() + blob


GOOD = entry()


@pytest.fixture
def store(tmp_path):
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
    """A manifest of some hundred kilobytes that inflates to hundreds of megabytes."""
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


def test_a_bomb(store, tmp_path, monkeypatch):
    file = bomb(tmp_path / "bomb.zip")
    assert file.stat().st_size < 2**20
    monkeypatch.setattr(zipfile.ZipFile, "read", None)

    tracemalloc.start()
    with pytest.raises(BadArchive, match="manifest"):
        import_archive(store, file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 5 * 2**20


def test_larger_than_the_store(store, tmp_path):
    """Entries that could only push each other out are not written."""
    file = write(tmp_path / "large.zip", about(), (KEYS[0], entry(size=2**19), STORED))
    with pytest.raises(BadRequest, match="the store takes"):
        import_archive(store, file)
    assert [] == list(store.keys())


def test_what_was_checked_is_written(store, tmp_path, monkeypatch):
    file = write(tmp_path / "results.zip", about(), good(0))
    other = write(tmp_path / "other.zip", about(), good(1), ("../../evil", b"", STORED))
    get = Archive.get

    def and_replace(archive, key):
        if other.exists():
            os.replace(other, file)
        return get(archive, key)

    monkeypatch.setattr(Archive, "get", and_replace)

    assert ("gpt2", 1) == import_archive(store, file)
    assert [KEYS[0]] == list(store.keys())


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
