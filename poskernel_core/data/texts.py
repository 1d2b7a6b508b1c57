"""Read the documents of a corpus: bundled, in a local file, on the hub, or typed on a page."""

import codecs
import gzip
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

from poskernel_core.common.errors import NoNetwork, UnknownCorpus, UnknownModel
from poskernel_core.common.files import parse_json
from poskernel_core.common.outside import outside
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.models.hub import fetch_file, offline

TEXTS = Path(__file__).resolve().parents[1] / "demo" / "texts"
BUNDLED = {"sample": TEXTS / "sample.jsonl.gz", "bible": TEXTS / "bible.jsonl.gz"}
TYPED = "text"
MARK = "\ufeff"
"""The byte order mark, which a typed text has from the file that it was copied from."""
MAX_FILE_BYTES = 2_000_000_000
LOOK_BYTES = 2**20
EXAMPLE = '{"text": "She sells sea shells."}'
OF_TURNS = re.compile(r'\s*(\[\s*\{|\{\s*"messages")')
"""How a line that holds a conversation begins."""
CONVERSATION = "it holds conversations, which only the question 'conversations' reads"
MAX_TEXTS = 2**24
LONGEST = 2**26
"""Most characters in a row."""
HELD = 2**26
"""Most characters of texts in memory at a time, unless a single text is longer."""
MIXED = 1000
"""Size of the shuffle buffer, in documents, for data sets whose rows are lines."""
TEXT_KINDS = ("string", "large_string", "string_view")
"""Arrow's types of texts."""
COMMIT = re.compile("[0-9a-f]{40}")
MARKER = ".gitattributes"
"""A small file that every repository of the hub has."""
ROWS = 16
"""Rows of a .parquet file decoded at a time."""


@dataclass(frozen=True)
class HubCorpus:
    """A data set on the hub, at a commit, or on a branch that is resolved to its commit.

    If its rows are lines, ``title`` is the pattern of those that begin a document.
    """

    repository: str
    revision: str
    subset: str | None = None
    title: str | None = None


HUB = {
    "openwebtext": HubCorpus("Skylion007/openwebtext", "refs/convert/parquet"),
    "wikitext": HubCorpus(
        "Salesforce/wikitext",
        "b08601e04326c79dfdd32d625aee71d232d685c3",
        subset="wikitext-103-raw-v1",
        title=r" = (?!= ).*(?<! =) = \n",
    ),
}


def commit_of(source: HubCorpus) -> str:
    """Return the commit of a data set: the pinned one, or that of its branch when first asked.

    It is the name of the branch while the hub has never been reached, as provenance says.
    """
    try:
        return source.revision if COMMIT.fullmatch(source.revision) else _resolved(source)
    except (NoNetwork, UnknownModel):
        return source.revision


@cache
def _resolved(source: HubCorpus) -> str:
    return fetch_file(source.repository, MARKER, source.revision, "dataset").parent.name


def offered_corpora() -> list[str]:
    """Return the corpora on offer, with the host's own files in ``POSKERNEL_CORPORA``."""
    own = map(str.strip, os.environ.get("POSKERNEL_CORPORA", "").split(","))
    return [*BUNDLED, *HUB, *filter(None, own)]


def check_offered(name: str) -> None:
    """Refuse other corpora if their names come from outside; called before a look at the disk."""
    if outside() and name not in offered_corpora():
        raise UnknownCorpus(
            f"There is no such corpus here: expected one of {', '.join(offered_corpora())}."
        )


def find_file(name: str) -> Path:
    """Return the file of a bundled or local corpus."""
    check_offered(name)
    path = BUNDLED.get(name) or Path(os.path.expanduser(name))
    if not os.path.isfile(path):
        known = ", ".join([*BUNDLED, *HUB])
        raise UnknownCorpus(
            f"No corpus {name[:200]!r}: expected {known}, or an existing .txt, .jsonl, .parquet or "
            ".npy file."
        )
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UnknownCorpus(f"{name!r} is larger than 2 GB: give a smaller extract of it.")
    return path


def items(name: str) -> list[str]:
    """Return the titles of the named texts (such as chapters) of a bundled corpus, in order."""
    return [record["title"] for record in bundled(name) if "title" in record]


@lru_cache(maxsize=8)
def bundled(name: str) -> tuple[dict[str, str], ...]:
    """Return the records of a bundled corpus; none for another one."""
    if name not in BUNDLED:
        return ()
    with gzip.open(BUNDLED[name], "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def documents(spec: CorpusSpec, seed: int = 0) -> Iterator[str]:
    """Return the documents of a corpus in an order fixed by ``seed``."""
    return counted_documents(spec, seed)[0]


def counted_documents(spec: CorpusSpec, seed: int = 0) -> tuple[Iterator[str], int | None]:
    """Return the documents as :func:`documents`, and their number (None for hub corpora)."""
    if spec.name == TYPED:
        return iter([(spec.text or "").removeprefix(MARK)]), 1
    if spec.item is not None:
        named = next(r["text"] for r in bundled(spec.name) if r.get("title") == spec.item)
        return iter([named]), 1
    if spec.name in HUB:
        return stream_hub(spec, seed), None
    if spec.name in BUNDLED:
        texts = bundled(spec.name)
        order = np.random.default_rng(seed).permutation(len(texts))
        return (texts[index]["text"] for index in order), len(texts)
    path = find_file(spec.name)
    with reading(path):
        lengths = np.fromiter(map(len, read_texts(path)), np.int64)
    return _shuffled(path, lengths, seed), len(lengths)


def _shuffled(path: Path, lengths: np.ndarray, seed: int) -> Iterator[str]:
    """Yield the texts of a file in an order fixed by ``seed``, with few in memory at a time."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    ends = np.cumsum(lengths[order])
    first = 0
    while first < len(order):
        before = ends[first - 1] if first else 0
        until = max(first + 1, int(np.searchsorted(ends, before + HELD, side="right")))
        indices = order[first:until].tolist()
        texts = dict.fromkeys(indices, "")
        with reading(path):
            last = -1
            for last, text in enumerate(read_texts(path)):
                if last in texts:
                    texts[last] = text
            if last < max(indices):
                raise ValueError("it was changed while it was read")
        yield from map(texts.__getitem__, indices)
        first = until


def read_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file in order."""
    for index, text in enumerate(_READERS[_suffix(path)](path)):
        if index == MAX_TEXTS:
            raise ValueError(f"it holds more than {MAX_TEXTS:,} texts")
        yield text


def look_at(path: Path) -> None:
    """Check a file of texts quickly, by its beginning or its metadata."""
    with reading(path):
        _LOOKS[_suffix(path)](path)


def _suffix(path: Path) -> str:
    return path.suffix.lower()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file of texts into one sentence."""
    try:
        yield
    except KeyError as error:
        raise UnknownCorpus(
            f"Expected a .txt, .jsonl, .parquet or .npy file, got {path.name!r}: save the texts in "
            "one of these."
        ) from error
    except UnicodeDecodeError as error:
        raise UnknownCorpus(f"{path.name!r} is not text in UTF-8: save it as that.") from error
    except OSError as error:
        raise UnknownCorpus(f"{path.name!r} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UnknownCorpus(f"{path.name!r} cannot be read as {_suffix(path)}: {error}.") from error


def encoding(path: Path) -> str:
    """Return UTF-16 for a file with its byte order mark, else UTF-8, with or without one."""
    with path.open("rb") as stream:
        first = stream.read(2)
    return "utf-16" if first in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def _look_at_txt(path: Path) -> None:
    with path.open("rb") as stream:
        text = codecs.getincrementaldecoder(encoding(path))().decode(stream.read(LOOK_BYTES))
    if "\0" in text:
        raise ValueError("it holds zeros, as no text does: save it as UTF-8")


def _read_jsonl(path: Path) -> Iterator[str]:
    with path.open(encoding=encoding(path)) as lines:
        for number, line in enumerate(iter(partial(lines.readline, LONGEST + 1), ""), 1):
            if len(line) > LONGEST:
                raise ValueError(f"line {number} is longer than {LONGEST:,} characters")
            if (text := _text_of(line, number)) is not None:
                yield text


def _look_at_jsonl(path: Path) -> None:
    first, number = "\n", 0
    with path.open(encoding=encoding(path)) as lines:
        while first.isspace():
            first, number = lines.readline(LOOK_BYTES), number + 1
    complete = first.endswith("\n") or len(first) < LOOK_BYTES
    if complete and not OF_TURNS.match(first):
        _text_of(first, number)


def _text_of(line: str, number: int) -> str | None:
    if not line.strip():
        return None
    record = None
    try:
        record = parse_json(line)
        text = record.get("text", 0) if isinstance(record, dict) else 0
        if not isinstance(text, str | None):
            raise ValueError
        (text or "").encode("utf-8")  # fails for a lone surrogate, such as \\ud800
    except ValueError as error:
        message = f"expected a line such as {EXAMPLE}, got {line.strip()[:40]!r} as line {number}"
        if OF_TURNS.match(line):
            raise ValueError(CONVERSATION) from error
        if isinstance(record, dict) and "text" not in record:
            message += _which(name for name in record if isinstance(record[name], str))
        raise ValueError(message) from error
    return text


def _which(columns: Iterable[str]) -> str:
    """Return what to do about a file without a column 'text' that has these columns of texts."""
    names = [repr(name[:40]) for name in columns]
    some = ", ".join(names[:6]) + ", …" * (len(names) > 6)
    return f"; its texts are in {some}: give the one to be read the name 'text'" if names else ""


def _read_parquet(path: Path) -> Iterator[str]:
    from pyarrow import parquet

    _look_at_parquet(path)
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS, columns=["text"]):
            for value in batch.column(0):
                text = value.as_py()
                if text is not None and len(text) > LONGEST:
                    raise ValueError(f"a row holds more than {LONGEST:,} characters")
                if text is not None:
                    yield text


def _look_at_parquet(path: Path) -> None:
    from pyarrow import ArrowInvalid, parquet, types

    try:
        described = parquet.read_metadata(path)
    except ArrowInvalid as error:
        raise ValueError("it is of another kind, or damaged") from error
    columns = described.schema.to_arrow_schema()
    kinds = {
        column.name: str(
            column.type.value_type if types.is_dictionary(column.type) else column.type
        )
        for column in columns
    }
    if "text" not in kinds:
        which = _which(name for name, kind in kinds.items() if kind in TEXT_KINDS)
        raise ValueError(f"it has no column 'text'{which}")
    if kinds["text"] not in (*TEXT_KINDS, "null"):
        raise ValueError(f"its column 'text' holds {kinds['text']}, expected texts")
    if described.num_rows > MAX_TEXTS:
        raise ValueError(f"it holds more than {MAX_TEXTS:,} texts")


def npy_shape(path: Path) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype in the header of a .npy file; check them against its size.

    Raises:
        ValueError: not a .npy file, or shorter than its header says.
    """
    with path.open("rb") as stream:
        form = np.lib.format
        try:
            first = form.read_magic(stream) == (1, 0)
            read = form.read_array_header_1_0 if first else form.read_array_header_2_0
            shape, _, kind = read(stream)
        except (ValueError, EOFError) as error:
            raise ValueError("it is of another kind, or damaged") from error
        held = path.stat().st_size - stream.tell()
    if min(shape, default=1) < 0 or math.prod(shape) * kind.itemsize > held:
        raise ValueError(f"its header claims {kind} {list(shape)}, which the file does not hold")
    return shape, kind


def _no_texts(_: Path) -> Iterator[str]:
    raise ValueError(CONVERSATION)


_READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    ".txt": lambda path: iter([path.read_text(encoding=encoding(path))]),
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".json": _no_texts,
}
_LOOKS: dict[str, Callable[[Path], object]] = {
    ".txt": _look_at_txt,
    ".jsonl": _look_at_jsonl,
    ".parquet": _look_at_parquet,
    ".npy": npy_shape,
    ".json": lambda path: None,
}


def check_reachable(spec: CorpusSpec) -> None:
    """Check that a hub corpus is available; do nothing for other corpora."""
    if spec.name not in HUB or not offline():
        return
    from huggingface_hub import constants

    kept = os.environ.get("HF_DATASETS_CACHE") or os.path.join(constants.HF_HOME, "datasets")
    if not (Path(kept) / HUB[spec.name].repository.replace("/", "___")).is_dir():
        raise NoNetwork(_no_network(spec.name))


def _no_network(name: str) -> str:
    return (
        f"The corpus {name!r} is streamed from the hub, which cannot be reached: use 'sample' or "
        "'bible' (bundled), or a local .txt, .jsonl or .parquet file."
    )


def stream_hub(spec: CorpusSpec, seed: int) -> Iterator[str]:
    """Yield the documents of a data set of the hub, in an order fixed by ``seed``."""
    from datasets import load_dataset

    source = HUB[spec.name]
    try:
        rows = load_dataset(
            source.repository, source.subset, split="train", streaming=True, revision=spec.revision
        )
        if source.title is None:
            yield from (row["text"] for row in rows.shuffle(seed=seed, buffer_size=10_000))
        else:
            yield from _mixed(_joined((row["text"] for row in rows), source.title), seed)
    except OSError as error:
        raise NoNetwork(_no_network(spec.name)) from error


def _joined(lines: Iterator[str], title: str) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        if held and re.fullmatch(title, line):
            yield "".join(held)
            held = []
        if held or line.strip():
            held.append(line)
    if held:
        yield "".join(held)


def _mixed(documents: Iterator[str], seed: int) -> Iterator[str]:
    draw, held = np.random.default_rng(seed), list(islice(documents, MIXED))
    for document in documents:
        place = int(draw.integers(len(held)))
        yield held[place]
        held[place] = document
    yield from (held[place] for place in draw.permutation(len(held)))
