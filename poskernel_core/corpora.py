"""Text -> windows of tokens.

A corpus is bundled (``sample``, ``bible``), streamed from the hub (``openwebtext``), a local
``.txt``, ``.jsonl`` or ``.parquet`` file, text typed on a page, or a ``.npy`` file of ready
token windows. Its fingerprint enters the key of everything computed from it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from poskernel_core.config import CorpusSpec
from poskernel_core.errors import BadRequest, NoNetwork, TooLittleText, UnknownCorpus
from poskernel_core.shapes import Tokens
from poskernel_core.tokenizers import Tokenizer

__all__ = ["BUNDLED", "HUB", "TYPED", "documents", "items", "resolve", "token_windows"]

TEXTS = Path(__file__).parent / "demo" / "texts"
BUNDLED = {"sample": TEXTS / "sample.jsonl.gz", "bible": TEXTS / "bible.jsonl.gz"}
TYPED = "text"
MAX_FILE_BYTES = 2_000_000_000


@dataclass(frozen=True)
class HubCorpus:
    """A data set on the hub, pinned to one revision."""

    repository: str
    revision: str
    split: str = "train"
    subset: str | None = None


HUB = {
    "openwebtext": HubCorpus("Skylion007/openwebtext", "refs/convert/parquet"),
    "wikitext": HubCorpus(
        "Salesforce/wikitext",
        "b08601e04326c79dfdd32d625aee71d232d685c3",
        subset="wikitext-103-raw-v1",
    ),
}


def resolve(spec: CorpusSpec) -> CorpusSpec:
    """Check that a corpus exists and fill in its fingerprint.

    Raises:
        UnknownCorpus: no such corpus, file, item or text.
    """
    if spec.name == TYPED:
        if spec.text is None or not spec.text.strip():
            raise UnknownCorpus("Expected some text, got none: type or paste a few sentences.")
        return spec.model_copy(update={"fingerprint": _sha(spec.text.encode())})
    if spec.name in HUB:
        pinned = spec.revision or HUB[spec.name].revision
        return spec.model_copy(update={"revision": pinned, "fingerprint": f"hub@{pinned}"})
    path = _path(spec.name)
    if spec.item is not None and spec.item not in items(spec.name):
        raise UnknownCorpus(
            f"Corpus {spec.name!r} has no text {spec.item!r}; it has: {_some(items(spec.name))}."
        )
    stat = path.stat()
    return spec.model_copy(
        update={"fingerprint": _file_sha(str(path), stat.st_size, stat.st_mtime_ns)}
    )


def _path(name: str) -> Path:
    path = BUNDLED.get(name) or Path(name).expanduser()
    if not path.is_file():
        known = ", ".join([*BUNDLED, *HUB])
        raise UnknownCorpus(
            f"No corpus {name!r}: expected {known}, or an existing .txt, .jsonl, .parquet or .npy "
            "file."
        )
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UnknownCorpus(f"{name!r} is larger than 2 GB: give a smaller extract of it.")
    return path


@lru_cache(maxsize=32)
def _file_sha(path: str, _size: int, _time: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (" and more" if len(names) > 8 else "")


def items(name: str) -> list[str]:
    """Return the titles of a bundled corpus' named texts (such as chapters), in order."""
    return [record["title"] for record in _bundled(name) if "title" in record]


@lru_cache(maxsize=8)
def _bundled(name: str) -> tuple[dict[str, str], ...]:
    if name not in BUNDLED:
        return ()
    with gzip.open(BUNDLED[name], "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def documents(spec: CorpusSpec, seed: int = 0) -> Iterator[str]:
    """Yield the documents of a corpus in an order fixed by ``seed``.

    Raises:
        UnknownCorpus: a file that cannot be read as what its name says.
        NoNetwork: a hub corpus, and the hub cannot be reached.
    """
    if spec.name == TYPED:
        yield spec.text or ""
    elif spec.item is not None:
        yield next(r["text"] for r in _bundled(spec.name) if r.get("title") == spec.item)
    elif spec.name in HUB:
        yield from _stream_hub(spec, seed)
    else:
        texts = _read_all(spec.name)
        for index in np.random.default_rng(seed).permutation(len(texts)):
            yield texts[index]


def _read_all(name: str) -> list[str]:
    if name in BUNDLED:
        return [record["text"] for record in _bundled(name)]
    path = _path(name)
    try:
        return _READERS[path.suffix.lower()](path)
    except KeyError as error:
        raise UnknownCorpus(
            f"Expected a .txt, .jsonl, .parquet or .npy file, got {path.name!r}; a .jsonl or "
            ".parquet file needs a column 'text'."
        ) from error
    except (UnicodeDecodeError, ValueError, TypeError, OSError) as error:
        raise UnknownCorpus(
            f"{path.name!r} cannot be read as {path.suffix}: {str(error).splitlines()[0][:150]}"
        ) from error


def _read_jsonl(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        return [str(json.loads(line)["text"]) for line in lines if line.strip()]


def _read_parquet(path: Path) -> list[str]:
    from pyarrow import parquet

    return [str(text) for text in parquet.read_table(path, columns=["text"])["text"].to_pylist()]


_READERS = {
    ".txt": lambda path: [path.read_text(encoding="utf-8")],
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


def _stream_hub(spec: CorpusSpec, seed: int) -> Iterator[str]:
    from datasets import load_dataset

    source = HUB[spec.name]
    try:
        rows = load_dataset(
            source.repository,
            source.subset,
            split=source.split,
            streaming=True,
            revision=spec.revision,
        )
        for row in rows.shuffle(seed=seed, buffer_size=10_000):
            yield row["text"]
    except (OSError, ValueError) as error:
        raise NoNetwork(
            f"The corpus {spec.name!r} is streamed from the hub, which cannot be reached: use "
            "'sample' or 'bible' (bundled), or a local .txt, .jsonl or .parquet file."
        ) from error


def token_windows(
    spec: CorpusSpec,
    tokenizer: Tokenizer | None,
    *,
    context: int,
    windows: int,
    start_token: bool,
    seed: int = 0,
    exactly: bool = False,
) -> Tokens:
    """Cut a corpus into windows of token ids, ``[windows, context]``.

    Documents follow each other, separated by a blank line, and are cut into consecutive windows;
    the start token, if asked for, takes the first place of each. A single text (typed, or a named
    item) gives one window, shorter than ``context`` where the text is.

    Raises:
        TooLittleText: no window at all, or fewer than ``windows`` while ``exactly``.
    """
    if spec.name.endswith(".npy"):
        return _ready_windows(spec, context, windows, exactly)
    if tokenizer is None:
        raise BadRequest(
            "The model has no tokenizer.json, so text cannot be cut into its tokens: add one, or "
            "give ready token windows as a .npy file of integers [windows, T]."
        )
    prefix = [tokenizer.start_id()] if start_token else []
    body = context - len(prefix)
    single = spec.name == TYPED or spec.item is not None
    rows = []
    for chunk in _chunks(documents(spec, seed), tokenizer, body, keep_short=single):
        rows.append(prefix + chunk)
        if len(rows) == (1 if single else windows):
            break
    _check_enough(spec, len(rows), 1 if single else windows, context, exactly)
    return np.array(rows, dtype=np.int64)


def _chunks(
    texts: Iterator[str], tokenizer: Tokenizer, size: int, keep_short: bool
) -> Iterator[list[int]]:
    pending: list[int] = []
    for text in texts:
        pending += tokenizer.encode(("\n\n" if pending else "") + text)
        full = len(pending) // size
        for start in range(0, full * size, size):
            yield pending[start : start + size]
        pending = pending[full * size :]
    if keep_short and pending:
        yield pending


def _ready_windows(spec: CorpusSpec, context: int, windows: int, exactly: bool) -> Tokens:
    try:
        array = np.load(_path(spec.name), allow_pickle=False)
    except (ValueError, OSError) as error:
        raise UnknownCorpus(f"{spec.name!r} is not a .npy file of numbers.") from error
    if array.ndim != 2 or array.dtype.kind not in "iu" or array.shape[1] != context:
        raise UnknownCorpus(
            f"Expected integers of shape [windows, {context}] in {spec.name!r}, got "
            f"{array.dtype} {list(array.shape)}: pass --context with the file's T, or another file."
        )
    _check_enough(spec, len(array), windows, context, exactly)
    return array[:windows].astype(np.int64)


def _check_enough(spec: CorpusSpec, got: int, asked: int, context: int, exactly: bool) -> None:
    if got == 0 or (exactly and got < asked):
        raise TooLittleText(
            f"Corpus {spec.name!r} gives {got} windows of {context} tokens, {asked} were asked "
            f"for: ask for fewer (--texts {max(got, 1)}), a shorter context, or more text."
        )
