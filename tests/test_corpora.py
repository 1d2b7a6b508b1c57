"""Windows of tokens against a plain loop over the tokenizer, from every kind of source."""

import gzip
import json

import numpy as np
import pytest

from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data import corpora, texts
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from tests import builders

CONTEXT = 29


@pytest.fixture(scope="module")
def tokenizer(model_dirs):
    """The tiny models' tokenizer, whose start token is 0."""
    return load_tokenizer(catalog.locate(str(model_dirs["gpt2"])))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same seven documents as .txt, .jsonl and .parquet."""
    import pyarrow
    from pyarrow import parquet

    plain, lines = builders.mini_corpus(tmp_path_factory.mktemp("corpus"))
    texts = [json.loads(line)["text"] for line in lines.read_text().splitlines()]
    columns = plain.with_suffix(".parquet")
    parquet.write_table(pyarrow.table({"other": range(7), "text": texts}), columns)
    return {"txt": plain, "jsonl": lines, "parquet": columns, "texts": texts}


def made(name, tokenizer, **changes):
    """The cut of a corpus, with this module's defaults."""
    given = {"context": CONTEXT, "windows": 1000, "start_token": True}
    return corpora.token_windows(CorpusSpec(name=str(name)), tokenizer, **{**given, **changes})


def cut(name, tokenizer, **changes):
    """Token windows of a corpus, with this module's defaults."""
    return made(name, tokenizer, **changes).tokens


def stretched(rows):
    """Leave the last rows out, until ten stretches are equally long; one row of each in turn."""
    groups = min(10, len(rows))
    each = len(rows) // groups
    return [rows[group * each + j] for j in range(each) for group in range(groups)]


def loop(texts, tokenizer, start):
    """Join documents by blank lines, encode one after the other, cut into rows."""
    tokens = []
    size = CONTEXT - len(start)
    for text in texts:
        # A row that ends with a document needs no blank line before the next.
        tokens += tokenizer.encode(text if len(tokens) % size == 0 else "\n\n" + text)
    return [start + tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)]


@pytest.mark.parametrize("start", [True, False])
def test_windows_of_one_document(files, tokenizer, start):
    """A text file is one document: stretches of rows, the rest that fills no row left out."""
    found = made(files["txt"], tokenizer, start_token=start)

    rows = loop([files["txt"].read_text()], tokenizer, [0] if start else [])
    assert stretched(rows) == found.tokens.tolist()
    assert "stretches" == found.dealt
    assert len(rows) > 20
    assert len(rows) % 10


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("seed", [0, 3])
def test_windows_of_documents(files, tokenizer, kind, seed):
    """Documents follow each other in an order that the seed fixes, with a blank line between."""
    order = np.random.default_rng(seed).permutation(7)

    rows = loop([files["texts"][j] for j in order], tokenizer, [0])

    assert stretched(rows) == cut(files[kind], tokenizer, seed=seed).tolist()


def test_texts_in_a_dictionary(files, tokenizer, tmp_path):
    """A column whose texts are numbered in a dictionary gives the same windows."""
    import pyarrow
    from pyarrow import parquet

    numbered = pyarrow.array(files["texts"]).dictionary_encode()
    parquet.write_table(pyarrow.table({"text": numbered}), tmp_path / "numbered.parquet")

    expected = cut(files["parquet"], tokenizer)

    np.testing.assert_array_equal(expected, cut(tmp_path / "numbered.parquet", tokenizer))
    assert corpora.resolve(CorpusSpec(name=str(tmp_path / "numbered.parquet"))).fingerprint


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("held", [1, 200])
def test_few_texts_are_held(files, monkeypatch, kind, held):
    """The order of the documents does not depend on how many are held at a time."""
    monkeypatch.setattr(texts, "HELD", held)
    order = np.random.default_rng(3).permutation(7)

    found = [*corpora.documents(CorpusSpec(name=str(files[kind])), 3)]

    assert [files["texts"][j] for j in order] == found


def test_rows_are_unpacked_as_they_are_read(tmp_path):
    """A small file whose rows take much memory together never takes it at once."""
    import pyarrow
    from pyarrow import parquet

    file, row, rows = tmp_path / "small.parquet", "sea shells " * 200, 3000
    parquet.write_table(pyarrow.table({"text": [row] * rows}), file)
    before, held = pyarrow.total_allocated_bytes(), []

    for each in texts._texts(file):
        assert row == each
        held.append(pyarrow.total_allocated_bytes() - before)

    assert file.stat().st_size < len(row) * rows / 100
    assert rows == len(held)
    assert max(held) < len(row) * rows / 10


def test_seeds(files, tokenizer):
    """The same seed gives the same windows, another seed others."""
    first, again, other = (cut(files["jsonl"], tokenizer, seed=seed) for seed in (1, 1, 2))

    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist()


def test_start_token(files, tokenizer):
    """It takes the first place of every window, and stands nowhere else."""
    windows = cut(files["jsonl"], tokenizer)

    assert {0} == set(windows[:, 0].tolist())
    assert 0 not in windows[:, 1:]


@pytest.mark.parametrize("windows", [1, 3])
def test_typed_text_gives_one_window(tokenizer, windows):
    """One text gives one window, as short as the text is."""
    spec = CorpusSpec(name="text", text="She sells sea shells.")

    found = corpora.token_windows(
        spec, tokenizer, context=CONTEXT, windows=windows, start_token=True
    )

    assert [[0, *tokenizer.encode("She sells sea shells.")]] == found.tokens.tolist()
    assert "stretches" == found.dealt


def test_typed_text_is_cut_to_the_context(tokenizer):
    """A text longer than the context gives its beginning."""
    text = builders.random_words(101)

    found = corpora.token_windows(
        CorpusSpec(name="text", text=text), tokenizer, context=13, windows=1, start_token=False
    )

    assert [tokenizer.encode(text)[:13]] == found.tokens.tolist()


def test_ready_windows(tmp_path):
    """A .npy file is taken as it is, without a tokenizer or a start token, in stretches."""
    ids = builders.random_ids(31, CONTEXT).numpy().astype(np.uint16)
    np.save(tmp_path / "ids.npy", ids)

    few, found = (made(tmp_path / "ids.npy", None, windows=each) for each in (5, 23))

    assert np.int64 == found.tokens.dtype
    assert "stretches" == few.dealt == found.dealt
    np.testing.assert_array_equal(ids[:5], few.tokens)
    np.testing.assert_array_equal(ids[[*range(0, 20, 2), *range(1, 20, 2)]], found.tokens)


def test_bundled_sample(tokenizer):
    """The bundled sample is there offline, and differs by seed."""
    spec = corpora.resolve(CorpusSpec())
    texts = {next(corpora.documents(spec, seed))[:99] for seed in range(5)}

    assert 64 == len(spec.fingerprint)
    assert len(texts) > 1


def test_bible_chapters(tokenizer):
    """Each chapter has a title by which it is asked for, and gives its own text."""
    titles = corpora.items("bible")

    assert "Genesis 24" in titles
    assert len(titles) == len(set(titles)) > 10
    for title in titles:
        spec = corpora.resolve(CorpusSpec(name="bible", item=title))
        (text,) = corpora.documents(spec)
        found = corpora.token_windows(spec, tokenizer, context=41, windows=9, start_token=False)
        assert [tokenizer.encode(text)[:41]] == found.tokens.tolist()


def test_bible_chapters_are_long_enough():
    """Each chapter has at least 1,100 of GPT-2's own tokens."""
    with gzip.open(texts.BUNDLED["bible"], "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]

    assert min(record["gpt2_tokens"] for record in records) >= 1100


def test_fingerprint_follows_the_content(tmp_path):
    """Other bytes under the same name are another corpus; the same bytes elsewhere are not."""
    file, copy = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("one two")
    copy.write_text("one two")
    prints = [corpora.resolve(CorpusSpec(name=str(f))).fingerprint for f in (file, copy)]
    file.write_text("one two three")

    assert prints[0] == prints[1]
    assert prints[0] != corpora.resolve(CorpusSpec(name=str(file))).fingerprint


def test_fingerprints_of_typed_texts():
    """Other texts, other fingerprints."""
    specs = [CorpusSpec(name="text", text=text) for text in ("one", "two", "one")]
    first, second, third = (corpora.resolve(spec).fingerprint for spec in specs)

    assert first == third != second
