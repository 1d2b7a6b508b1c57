"""Notes on heads: kept in a file that people can read, one a head, whoever writes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest, StoreFailed
from poskernel_core.storage.notes import MAX_NOTE, Notes

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def test_one_note_a_head(tmp_path):
    """Another model's head of the same name has its own; an empty note removes it."""
    notes = Notes(tmp_path / "store")
    assert notes.of("a", "L0H3") == ""
    notes.write("one", "a", "L0H3", " looks back \n")
    notes.write("two", "b", "L0H3", "uniform")
    notes.write("one", "a", "L0H3", "looks one back")
    assert (notes.of("a", "L0H3"), notes.of("b", "L0H3")) == ("looks one back", "uniform")
    assert [(n.model, n.head) for n in notes.all()] == [("one", "L0H3"), ("two", "L0H3")]
    notes.write("one", "a", "L0H3", "  ")
    assert [n.model for n in Notes(tmp_path / "store").all()] == ["two"]
    told = json.loads((tmp_path / "store" / "notes.json").read_text("utf-8"))
    assert (told[0]["head"], told[0]["text"]) == ("L0H3", "uniform")


def test_notes_from_before(tmp_path):
    """They call the head a cell; what is written next to them calls all of them heads."""
    earlier = {"model": "m", "fingerprint": "f", "cell": "L0H3", "text": "old", "date": "2026"}
    (tmp_path / "notes.json").write_text(json.dumps([earlier]))
    notes = Notes(tmp_path)
    assert notes.of("f", "L0H3") == "old"
    notes.write("m", "f", "L0H4", "new")
    assert [each["head"] for each in json.loads(notes.file.read_text())] == ["L0H3", "L0H4"]


@given(TEXTS)
def test_what_is_noted_is_read_again(tmp_path_factory, text):
    notes = Notes(tmp_path_factory.mktemp("notes"))
    notes.write("m", "f", "L1H2", text)
    assert notes.of("f", "L1H2") == text.strip()


def test_several_write_at_once(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Notes(tmp_path).write("m", "f", f"L0H{n}", str(n)), range(24)))
    assert sorted(int(note.text) for note in Notes(tmp_path).all()) == list(range(24))


def test_what_cannot_be_written(tmp_path):
    notes = Notes(tmp_path)
    notes.write("m", "f", "L0H0", "old")
    with pytest.raises(BadRequest, match=f"at most {MAX_NOTE:,} characters, got 4,001"):
        notes.write("m", "f", "L0H0", "x" * 4001)
    with pytest.raises(StoreFailed):
        notes.write("m", "f", "L0H0", "\ud800")
    assert notes.of("f", "L0H0") == "old"


def test_another_file(tmp_path):
    file = tmp_path / "notes.json"
    expected = "expected a list of notes, each with model, fingerprint"
    for content in ("{", '{"a": 1}', '[{"model": "m"}]', "[1]", '["x"]', "[" * 100_000):
        file.write_text(content)
        with pytest.raises(StoreFailed, match=expected):
            Notes(tmp_path).of("f", "L0H0")
        with pytest.raises(StoreFailed):
            Notes(tmp_path).write("m", "f", "L0H0", "new")
        assert file.read_text() == content
