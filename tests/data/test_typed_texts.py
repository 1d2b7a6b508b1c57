"""A text that looks like a file is read or refused, on the command line and in Python."""

import json

import numpy as np
import pytest

from poskernel_core import analyses
from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS
from poskernel_core.engine.plan import check_params
from tests.support.builders import ARCHITECTURES
from tests.support.builders.chat import with_template

WORDS = "the sea shells that she sells\n"
TURNS = [{"role": "user", "content": "the sea"}, {"role": "assistant", "content": "shells"}]


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    return with_template(ARCHITECTURES["gpt2"](tmp_path_factory.mktemp("typed") / "m"))


@pytest.fixture
def asked(name, tmp_path, monkeypatch):
    """Ask for a question with a text, from a folder of files; return the text as it is measured."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text(WORDS)
    (tmp_path / "notes").write_text(WORDS)
    (tmp_path / "UPPER.TXT").write_bytes(b"\xef\xbb\xbf" + WORDS.encode())
    (tmp_path / "turns.json").write_text(json.dumps(TURNS))
    (tmp_path / "turns.jsonl").write_text(json.dumps({"messages": TURNS}))
    (tmp_path / "long.txt").write_text("a" * (MAX_TEXT_CHARACTERS + 5))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xfa" * 3)
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "windows.npy", np.zeros((2, 3), int))
    monkeypatch.setenv("HOME", str(tmp_path))

    def ask(text, field="text", analysis="own-text", **more):
        params = {field: text} | ({"changed": "b"} if field == "clean" else {})
        request = build_request(analysis, name, params=params, **more)[0]
        return getattr(check_params(analyses.find(analysis), request.params), field)

    return ask


@pytest.mark.parametrize("file", ["notes.txt", "notes", "UPPER.TXT", "./notes.txt", "~/notes.txt"])
def test_a_file_is_read(asked, file):
    assert WORDS == asked(file)
    assert WORDS == asked(file, "clean", "patch-heads")


@pytest.mark.parametrize("file", ["turns.json", "turns.jsonl"])
def test_a_conversation_is_written_by_the_template(asked, file):
    assert "<|endoftext|>user:the sea\n<|endoftext|>assistant:shells\n" == asked(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("missing.json", "and there is no such file"),
        ("missing.txt", "and there is no such file"),
        ("no/such/folder/missing.JSONL", "and there is no such file"),
        ("windows.npy", "which is something else"),
        ("folder", "which is something else"),
        ("bytes.txt", "not text in UTF-8"),
        ("long.txt", "100000 characters"),
    ],
)
def test_what_cannot_be_read_is_refused(asked, text, told):
    with pytest.raises(BadRequest, match=told) as refused:
        asked(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["the sea", "see notes.txt for more", "a\nnotes.txt\n", "x" * 9000, "a.b", "", "\0.txt"]
)
def test_a_text_stays_a_text(asked, text):
    assert text == asked(text)


def test_where_files_are_not_meant_a_text_is_a_text(asked):
    """In a page, a link, or from another machine."""
    for text in ("notes.txt", "missing.json", "folder"):
        assert text == asked(text, files=False)


def test_every_parameter_that_is_a_text_is_looked_at():
    """By its bound: a new one is found by it."""
    found = {name for each in analyses.ANALYSES.values() for name in each.params.typed_texts()}
    assert {"text", "clean", "changed", "pairs", "own_texts"} == found
