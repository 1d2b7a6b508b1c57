"""Windows of tokens against a plain loop over the tokenizer, from every kind of source."""

import itertools
import json
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from poskernel_core.common import groups
from poskernel_core.common.errors import NoNetwork, TooLittleText
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data import corpora, texts
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import Tokenizer, load_tokenizer
from tests.support import builders

CONTEXT = 29


@pytest.fixture(scope="module")
def tokenizer(model_dirs):
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
    given = {"context": CONTEXT, "windows": 1000, "start_token": True}
    return corpora.token_windows(CorpusSpec(name=str(name)), tokenizer, **{**given, **changes})


def cut(name, tokenizer, **changes):
    return made(name, tokenizer, **changes).tokens


def stretched(rows):
    """Leave the last rows out, until ten stretches are equally long; one row of each in turn."""
    groups = min(10, len(rows))
    each = len(rows) // max(1, groups)
    return [rows[group * each + j] for j in range(each) for group in range(groups)]


def loop(texts, tokenizer, start, context=CONTEXT):
    """Join documents by blank lines, encode one after the other, cut into rows."""
    tokens = []
    size = context - len(start)
    for text in texts:
        # A row that ends with a document needs no blank line before the next.
        tokens += tokenizer.encode(text if len(tokens) % size == 0 else "\n\n" + text)
    return [start + tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)]


def dealing_loop(texts, tokenizer, start, windows, share, context=CONTEXT, laps=True):
    """Deal all documents, lap after lap, and take as many rows of each group in turn."""
    size = context - len(start)
    groups = [[] for _ in range(10)]
    left = []
    for text in texts:
        fewest = 0
        for number in range(10):
            if len(groups[number]) < len(groups[fewest]):
                fewest = number
        tokens = tokenizer.encode(text if len(groups[fewest]) % size == 0 else "\n\n" + text)
        groups[fewest] += tokens[: share * size]
        left.append((fewest, tokens[share * size :]))
    while laps and any(tokens for _, tokens in left):
        for group, tokens in left:
            groups[group] += tokens[: share * size]
            del tokens[: share * size]
    each = min([max(1, windows // 10)] + [len(tokens) // size for tokens in groups])
    rows = [start + tokens[j * size : (j + 1) * size] for j in range(each) for tokens in groups]
    return rows[:windows]


@dataclass(frozen=True)
class Letters(Tokenizer):
    """A tokenizer whose tokens are letters, of which it cuts two at a time and keeps count."""

    model: str = "letters"
    backend: Backend = field(default_factory=lambda: Backend(BPE()))
    start_token: str | None = None
    runs: list[list[int]] = field(default_factory=list)

    def start_id(self):
        return 0

    def encode_in_runs(self, text):
        for first in range(0, len(text), 2):
            self.runs.append([ord(letter) for letter in text[first : first + 2]])
            yield self.runs[-1]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("dealt") / "dealt.jsonl"


def corpus(place, texts):
    lines = np.argsort(np.random.default_rng(0).permutation(len(texts)))
    place.write_text("".join(json.dumps({"text": texts[j]}) + "\n" for j in lines))
    return place


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("seed", [0, 3])
def test_windows_of_documents(files, tokenizer, kind, seed):
    order = np.random.default_rng(seed).permutation(7)
    rows = loop([files["texts"][j] for j in order], tokenizer, [0])
    assert stretched(rows) == cut(files[kind], tokenizer, seed=seed).tolist()


@given(st.integers(10, 999))
def test_every_group_may_have_its_windows(documents):
    """By hand: 1.2 times 500 / 13 windows are 46.2; seven of ten groups have one document."""
    assert (50, 1) == (corpora.largest_share(13), corpora.largest_share(None))
    share = corpora.largest_share(documents)
    fits = [
        n * (documents // 10) >= 50 and 5 * n * documents >= 6 * 500 for n in (share - 1, share)
    ]
    assert [False, True] == fits


LINES = [
    "", " = Sea shells = \n", "", " She sells = them . \n", "", " = = Shore = = \n", "", " = x \n",
    "", " = A ( b = c ) = \n", "", " Second . \n", " = = = Deep = = = \n", "", " = T = \n", "",
]  # fmt: skip
ARTICLES = [
    " = Sea shells = \n She sells = them . \n = = Shore = = \n = x \n",
    " = A ( b = c ) = \n Second . \n = = = Deep = = = \n",
    " = T = \n",
]


@dataclass
class Rows:
    """What the hub streams: the rows of a data set, and what was asked of it."""

    lines: list[str]
    shuffled: list[dict] = field(default_factory=list)

    def __iter__(self):
        return iter({"text": line} for line in self.lines)

    def shuffle(self, **how):
        """Rows backwards, so that it is seen."""
        self.shuffled.append(how)
        return Rows(self.lines[::-1])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_byte_order_marks(tmp_path, kind, encoding):
    """A mark says how a file is written, and is no part of its texts."""
    file, text = tmp_path / f"marked.{kind}", "Größe 🙂"
    file.write_text(json.dumps({"text": text}) if kind == "jsonl" else text, encoding)
    spec = corpora.resolve(CorpusSpec(name=str(file)))
    assert [text] == [*corpora.documents(spec)]


def test_a_mark_in_a_typed_text():
    typed = CorpusSpec(name="text", text="\ufeffShe sells.")
    assert ["She sells."] == [*corpora.documents(typed)]


@pytest.mark.parametrize("reached", [True, False])
def test_a_branch_is_resolved_once(monkeypatch, reached):
    """Results name the commit; without the hub, the branch."""
    asked = []

    def fetch(name, file, revision, kind):
        asked.append((name, revision, kind))
        if not reached:
            raise NoNetwork("offline")
        return Path("/hub/snapshots") / f"{len(asked):040x}" / file

    source = texts.HubCorpus(f"owner/reached-{reached}", "refs/convert/parquet")
    monkeypatch.setitem(texts.HUB, "openwebtext", source)
    monkeypatch.setattr(texts, "fetch_file", fetch)
    found = [corpora.resolve(CorpusSpec(name="openwebtext")) for _ in range(2)]
    assert (source.repository, "refs/convert/parquet", "dataset") == asked[0]
    expected = f"{1:040x}" if reached else "refs/convert/parquet"
    assert [(expected, f"hub@{expected}")] * 2 == [(s.revision, s.fingerprint) for s in found]
    assert (1 if reached else 2) == len(asked)


@pytest.fixture
def hub(monkeypatch):
    def stand_in(lines):
        rows = Rows(lines)
        monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: rows)
        return rows

    return stand_in


def test_articles_of_lines(hub):
    rows = hub(LINES)
    found = [*corpora.documents(CorpusSpec(name="wikitext"), 3)]
    assert sorted(ARTICLES) == sorted(found)
    assert not rows.shuffled


def test_lines_before_the_first_title(hub):
    hub(["", "\n", " Before . \n", *LINES])
    assert {" Before . \n", *ARTICLES} == {*corpora.documents(CorpusSpec(name="wikitext"))}
    hub(["", " \n"])
    assert [] == [*corpora.documents(CorpusSpec(name="wikitext"))]


def test_the_order_of_articles(hub, monkeypatch):
    monkeypatch.setattr(texts, "MIXED", 7)
    articles = [f" = {j} = \n Text . \n" for j in range(53)]
    hub([line + "\n" for each in articles for line in each.split("\n")[:-1]])

    orders = [[*corpora.documents(CorpusSpec(name="wikitext"), seed)] for seed in (0, 0, 1)]

    assert orders[0] == orders[1] != orders[2]
    for order in orders:
        assert sorted(articles) == sorted(order)
        assert articles != order
        assert all(articles.index(each) <= place + 7 for place, each in enumerate(order))


def test_rows_that_are_documents(hub):
    rows = hub(["one", " = two = \n"])
    assert [" = two = \n", "one"] == [*corpora.documents(CorpusSpec(name="openwebtext"), 5)]
    assert [{"seed": 5, "buffer_size": 10_000}] == rows.shuffled


SIZES = st.lists(st.integers(0, 61), max_size=41) | st.lists(st.integers(0, 211), min_size=10)


@given(
    sizes=SIZES,
    windows=st.integers(1, 47),
    context=st.integers(2, 13),
    start=st.booleans(),
    known=st.booleans(),
    share=st.integers(1, 5),
)
@example(sizes=[61] * 13, windows=47, context=5, start=False, known=True, share=1)
@example(sizes=[61] * 13, windows=47, context=5, start=False, known=False, share=1)
@example(sizes=[5] * 13, windows=13, context=17, start=False, known=True, share=1)
@example(sizes=[5] * 13, windows=3, context=17, start=False, known=False, share=1)
@example(sizes=[17] * 9, windows=13, context=7, start=False, known=True, share=1)
@example(sizes=[17] * 10, windows=13, context=7, start=False, known=True, share=1)
def test_a_document_stays_in_its_group(place, sizes, windows, context, start, known, share):
    documents = [chr(99 + j) * size for j, size in enumerate(sizes)]
    wanted = windows - windows % min(10, windows)
    first, many = [0][:start], min(10, windows)
    asked = {"context": context, "windows": windows, "start_token": start}
    expected = []
    if not known or len(sizes) >= 10:
        expected = dealing_loop(documents, Letters(), first, wanted, share, context, laps=known)
    apart = bool(expected)
    if not apart:
        expected = stretched(loop(documents, Letters(), first, context)[:500])[:wanted]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(texts, "stream_hub", lambda *_: iter(documents))
        patched.setattr(corpora, "largest_share", lambda documents: share)
        name = corpus(place, documents) if known else "openwebtext"
        if not expected:
            with pytest.raises(TooLittleText, match="gives 0 windows"):
                made(name, Letters(), **asked)
            return
        found = made(name, Letters(), **asked)

    assert expected == found.tokens.tolist()
    assert ("documents" if apart else "stretches") == found.dealt
    assert 0 == len(found.tokens) % groups.groups_of(len(found.tokens))
    for letter in range(99, 99 + len(sizes) * apart):
        rows, _ = np.nonzero(found.tokens == letter)
        assert len({*(rows % many)}) <= 1
        assert known or len(rows) <= share * (context - start)
    assert apart == bool(found.beginnings)
    for group, begun in enumerate(found.beginnings):
        seen = found.tokens[group::many]
        read = [text for text in documents if text and ord(text[0]) in seen]
        assert read == [*filter(None, begun)]


@pytest.mark.parametrize("windows", [7, 47, 500, 600, 900])
def test_stretches_of_a_long_text(tmp_path, windows):
    """Those of the first 500 windows, or of all that are asked for."""
    text = "".join(map(chr, np.random.default_rng(0).integers(99, 999, 1301)))
    (tmp_path / "long.txt").write_text(text)

    found = made(tmp_path / "long.txt", Letters(), context=3, windows=windows)

    rows = loop([text], Letters(), [0], 3)
    assert 650 == len(rows)
    expected = stretched(rows[: max(windows, 500)])[: windows - windows % min(10, windows)]
    assert expected == found.tokens.tolist()


def test_the_rest_of_a_long_document(place):
    """Beyond its share, a document is neither taken nor cut into tokens."""
    tokenizer = Letters()
    documents = ["a" * 100_003, *(chr(99 + j) * 13 for j in range(600))]
    found = made(corpus(place, documents), tokenizer, context=7, windows=20, start_token=False)
    assert (20, 7) == found.tokens.shape
    assert 7 == (found.tokens == ord("a")).sum()
    assert 20 * 4 == len(tokenizer.runs)


def test_a_full_group_in_further_laps(place, monkeypatch):
    """Its documents are not cut into tokens again."""
    monkeypatch.setattr(corpora, "largest_share", lambda documents: 1)
    tokenizer = Letters()
    documents = [chr(99 + j) * 31 for j in range(21)]
    found = made(corpus(place, documents), tokenizer, context=7, windows=40, start_token=False)
    order = [*range(21), *range(1, 10), 0, *range(11, 20)]
    assert [[99 + j] * 7 for j in order] == found.tokens.tolist()
    assert 21 * 4 + 19 * 7 == len(tokenizer.runs)


@pytest.mark.parametrize(("windows", "read"), [(64, 60), (7, 10)])
def test_a_stream_is_read_until_all_groups_have_their_windows(monkeypatch, windows, read):
    tokenizer, letters = Letters(), itertools.count(99)
    monkeypatch.setattr(texts, "stream_hub", lambda *_: (chr(j) * 23 for j in letters))
    found = made("openwebtext", tokenizer, context=7, windows=windows, start_token=False)
    assert [[99 + j] * 7 for j in range(min(windows, read))] == found.tokens.tolist()
    assert 99 + read == next(letters)
    assert read * 4 == len(tokenizer.runs)


@pytest.mark.parametrize(("windows", "has"), [(64, 60), (7, 7)])
def test_equal_groups(tokenizer, windows, has):
    texts = [*itertools.islice(corpora.documents(CorpusSpec(), 5), 60)]
    assert texts[0] != next(corpora.documents(CorpusSpec(), 0))
    found = made("sample", tokenizer, windows=windows, seed=5)
    assert (has, CONTEXT) == found.tokens.shape
    assert dealing_loop(texts, tokenizer, [0], has, 3) == found.tokens.tolist()


def test_texts_in_a_dictionary(files, tokenizer, tmp_path):
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

    for each in texts.read_texts(file):
        assert row == each
        held.append(pyarrow.total_allocated_bytes() - before)

    assert file.stat().st_size < len(row) * rows / 100
    assert rows == len(held)
    assert max(held) < len(row) * rows / 10


@pytest.mark.parametrize("text", ["She sells sea shells.", builders.random_words(101)])
@pytest.mark.parametrize(("windows", "start"), [(1, False), (3, True)])
def test_typed_text_gives_one_window(tokenizer, text, windows, start):
    found = corpora.token_windows(
        CorpusSpec(name="text", text=text), tokenizer, context=CONTEXT, windows=windows,
        start_token=start,
    )  # fmt: skip
    assert [([0][:start] + tokenizer.encode(text))[:CONTEXT]] == found.tokens.tolist()
    assert "stretches" == found.dealt


@pytest.mark.parametrize(("windows", "has"), [(5, 5), (23, 20), (40, 30)])
def test_ready_windows(tmp_path, windows, has):
    """Stretches of the whole file, however many of its windows are asked for."""
    ids = builders.random_ids(31, CONTEXT).numpy().astype(np.uint16)
    np.save(tmp_path / "ids.npy", ids)

    found = made(tmp_path / "ids.npy", None, windows=windows)

    assert np.int64 == found.tokens.dtype
    assert "stretches" == found.dealt
    assert stretched(ids.tolist())[:has] == found.tokens.tolist()


def test_few_windows_of_a_large_file(tmp_path):
    """Only those that are asked for are read."""
    np.save(tmp_path / "ids.npy", np.zeros((2**15, CONTEXT), np.int64))
    tracemalloc.start()
    found = made(tmp_path / "ids.npy", None, windows=20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (20, CONTEXT) == found.tokens.shape
    assert peak < 2**15 * CONTEXT * 8 / 5


def test_bible_chapters(tokenizer):
    titles = corpora.items("bible")

    assert "Genesis 24" in titles
    assert len(titles) == len(set(titles)) > 10
    for title in titles:
        spec = corpora.resolve(CorpusSpec(name="bible", item=title))
        (text,) = corpora.documents(spec)
        found = corpora.token_windows(spec, tokenizer, context=41, windows=9, start_token=False)
        assert [tokenizer.encode(text)[:41]] == found.tokens.tolist()


def test_fingerprint_follows_the_content(tmp_path):
    file, copy = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("one two")
    copy.write_text("one two")
    prints = [corpora.resolve(CorpusSpec(name=str(f))).fingerprint for f in (file, copy)]
    file.write_text("one two three")

    assert prints[0] == prints[1]
    assert prints[0] != corpora.resolve(CorpusSpec(name=str(file))).fingerprint
