"""Corpora that are not there, not readable or too short: one sentence each."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest, NoNetwork, TooLittleText, UnknownCorpus
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data import corpora, texts
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.prepare import prepare
from tests.data.test_corpora import CONTEXT, Letters, corpus, cut, files, loop, place, tokenizer

__all__ = ["files", "place", "tokenizer"]


UNKNOWN = {
    "no such chapter": (CorpusSpec(name="bible", item="Genesis 99"), "no text 'Genesis 99'"),
    "no text": (CorpusSpec(name="text"), "Expected some text"),
    "blank text": (CorpusSpec(name="text", text=" \n"), "Expected some text"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_corpora(case):
    spec, words = UNKNOWN[case]
    with pytest.raises(UnknownCorpus, match=words):
        corpora.resolve(spec)


UNREADABLE = {"half.jsonl": b'{"text": "a"}\n{"text": ', "text.npy": b"no array"}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files(tmp_path, tokenizer, name):
    (tmp_path / name).write_bytes(UNREADABLE[name])
    words = rf"{name}.* as line 2" if name == "half.jsonl" else name
    with pytest.raises(UnknownCorpus, match=words) as caught:
        cut(tmp_path / name, tokenizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 11), int), np.zeros((3, CONTEXT)), np.zeros(CONTEXT, int), np.array(5)]
)
def test_ready_windows_of_another_shape(tmp_path, array):
    np.save(tmp_path / "ids.npy", array)
    with pytest.raises(UnknownCorpus, match=rf"\[windows, {CONTEXT}\].*got {array.dtype}"):
        cut(tmp_path / "ids.npy", None)


@pytest.mark.parametrize(
    ("kind", "bound", "words"),
    [
        ("jsonl", "LONGEST", "line 1 is longer than 6 characters"),
        ("parquet", "LONGEST", "a row holds more than 6 characters"),
        ("jsonl", "MAX_TEXTS", "more than 6 texts"),
        ("parquet", "MAX_TEXTS", "more than 6 texts"),
    ],
)
def test_rows_without_end(files, tokenizer, monkeypatch, kind, bound, words):
    monkeypatch.setattr(texts, bound, 6)
    with pytest.raises(UnknownCorpus, match=words):
        cut(files[kind], tokenizer)


def test_a_file_that_shrinks(files, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "HELD", 1)
    file = tmp_path / "lines.jsonl"
    file.write_bytes(files["jsonl"].read_bytes())
    found = corpora.documents(CorpusSpec(name=str(file)))
    next(found)
    file.write_text("")

    with pytest.raises(UnknownCorpus, match="changed while it was read"):
        next(found)


def test_too_little_text(files, tokenizer):
    order = np.random.default_rng(0).permutation(7)
    has = len(loop([files["texts"][j] for j in order], tokenizer, [0]))
    assert 107 == has

    with pytest.raises(
        TooLittleText, match=f"gives 107 windows of {CONTEXT} tokens, 113 were asked for: ask for 1"
    ):
        cut(files["jsonl"], tokenizer, windows=113, exactly=True)
    assert [100, 100] == [
        len(cut(files["jsonl"], tokenizer, windows=each, exactly=True)) for each in (107, 109)
    ]


def test_too_little_text_in_a_group(place):
    asked = {"context": 7, "start_token": False, "exactly": True}
    documents = [chr(99 + j) * (20 if j == 4 else 101) for j in range(10)]
    file = corpus(place, documents)

    with pytest.raises(TooLittleText, match="gives 20 windows of 7 tokens, 34 were asked for: ask"):
        cut(file, Letters(), windows=34, **asked)
    assert 20 == len(cut(file, Letters(), windows=29, **asked))
    assert 20 == len(cut(file, Letters(), windows=34, **asked | {"exactly": False}))


def test_no_text_at_all(tmp_path, tokenizer):
    (tmp_path / "short.txt").write_text("one")
    with pytest.raises(
        TooLittleText, match=r"gives 0 windows.*: give a longer text, a shorter con"
    ):
        cut(tmp_path / "short.txt", tokenizer)


def test_without_a_tokenizer(files):
    with pytest.raises(BadRequest, match=r"\.npy"):
        cut(files["txt"], None)


def test_hub_corpus_offline(tokenizer):
    with pytest.raises(NoNetwork, match="'sample'"):
        cut("openwebtext", tokenizer)


@pytest.mark.parametrize("ready", [True, False])
def test_tokens_of_another_model(model_dirs, tmp_path, ready):
    path, file = tmp_path / "model", tmp_path / "windows.npy"
    shutil.copytree(model_dirs["gpt2"], path)
    shutil.copy(Path(pk.__file__).parent / "demo/demo-gpt2/tokenizer.json", path)
    np.save(file, np.full((2, 13), 4095))
    corpus = str(file) if ready else "sample"
    run = pk.describe_run(path, corpus=corpus, context=13, windows=2)
    located = locate(path)
    remedy = (
        f"make the windows of {corpus!r} with the tokenizer of {str(path)!r}"
        if ready
        else f"the tokenizer of {str(path)!r} is another model's"
    )

    with pytest.raises(BadRequest, match=r"^Token ids must lie in 0 \.\. 292; got ") as caught:
        prepare(run, pk.Execution(), located, load_tokenizer(located))
    assert remedy in str(caught.value)


def test_rows_without_text(tmp_path):
    """A row whose text is null has no text; it is not the word None."""
    file = tmp_path / "holes.jsonl"
    file.write_text('{"text": "one"}\n{"text": null}\n{"text": "two"}\n')
    assert {"one", "two"} == set(corpora.documents(CorpusSpec(name=str(file))))


@pytest.mark.parametrize(
    ("text", "words"),
    [("sea shells", "4 tokens.*leading space"), ("", "0 tokens"), ("zq", "2 tokens")],
)
def test_single_token(tokenizer, text, words):
    with pytest.raises(BadRequest, match=words):
        tokenizer.single_id(text)
    assert tokenizer.encode(" the") == [tokenizer.single_id(" the")]
