"""Notes on heads, in a file that people can read; typed texts, in the store under their names."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest, StoreFailed
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS
from poskernel_core.storage import typed
from poskernel_core.storage.notes import MAX_NOTE, Notes
from poskernel_core.storage.store import Store
from poskernel_core.storage.typed import is_name, keep_text, kept_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


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
    notes.write("m", "f", "L0H1", "x" * MAX_NOTE)
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


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = Store(tmp_path_factory.mktemp("typed"))
    yield made
    made.close()


@given(TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(store, text):
    name = keep_text(store, text)

    assert is_name(name)
    assert text == kept_text(store, name)
    assert name == keep_text(store, text)


def test_another_text_has_another_name(store):
    assert 4 == len({keep_text(store, text) for text in ("a", "a ", "a\u0308", "\u00e4")})


def test_gone_or_not_what_its_name_says(store):
    name = keep_text(store, "the first")
    store.drop(f"typed-{name}")
    for each in (name, "f" * 32, "../../etc/passwd"):
        assert kept_text(store, each) is None
    for header in ({"text": "another"}, {"text": 3}, {}, {"text": "\ud800"}):
        store.put(f"typed-{name}", header, {})
        assert kept_text(store, name) is None
        assert name == keep_text(store, "the first")
        assert "the first" == kept_text(store, name)


def test_refused(store, monkeypatch):
    with pytest.raises(BadRequest, match="100,000 characters, got 100,001"):
        keep_text(store, "x" * (MAX_TEXT_CHARACTERS + 1))
    with pytest.raises(BadRequest, match="half a character at place 2"):
        keep_text(store, "ab\ud800")
    monkeypatch.setenv("POSKERNEL_MAX_CHARACTERS", "1000")
    with pytest.raises(BadRequest, match="1,000 characters, got 1,001"):
        keep_text(store, "x" * 1001)


def test_a_store_that_cannot_be_written(store, monkeypatch):
    name = keep_text(store, "before")

    def put(*_):
        raise StoreFailed("full")

    monkeypatch.setattr(store, "put", put)
    assert name == keep_text(store, "before")
    with pytest.raises(StoreFailed):
        keep_text(store, "after")


def test_the_oldest_go_first(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put("a-result", {}, {})
    store.put("typed.no-text", {}, {})
    monkeypatch.setenv("POSKERNEL_MAX_TEXTS", "3")
    names = [keep_text(store, f"text {number}") for number in range(5)]

    assert [None, None, "text 2", "text 3", "text 4"] == [kept_text(store, name) for name in names]
    assert {"a-result", "typed.no-text"} <= set(store.keys())

    monkeypatch.setenv("POSKERNEL_MAX_TEXTS_MB", "1")
    monkeypatch.setattr(typed, "MAX_TEXT_CHARACTERS", 3_000_000)
    monkeypatch.setenv("POSKERNEL_MAX_CHARACTERS", "3000000")
    halves = [keep_text(store, letter * 400_000) for letter in "abc"]
    assert [False, True, True] == [kept_text(store, name) is not None for name in halves]
    assert kept_text(store, names[4]) is None
    whole = keep_text(store, "d" * 2_000_000)
    assert "d" * 2_000_000 == kept_text(store, whole)
    assert 1 == len(list(store.keys("typed-")))
    store.close()
