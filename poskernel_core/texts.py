"""Where text comes from: bundled files, local files, the hub, or the page itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from poskernel_core.config import CorpusSpec
from poskernel_core.errors import NoNetwork, UnknownCorpus

__all__ = ["BUNDLED", "HUB", "TYPED", "documents", "find_file", "items"]

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


def find_file(name: str) -> Path:
    """Return the file of a bundled or local corpus.

    Raises:
        UnknownCorpus: there is none, or it is too large.
    """
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
    path = find_file(name)
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
        found = [json.loads(line)["text"] for line in lines if line.strip()]
    return [str(text) for text in found if text is not None]


def _read_parquet(path: Path) -> list[str]:
    from pyarrow import parquet

    found = parquet.read_table(path, columns=["text"])["text"].to_pylist()
    return [str(text) for text in found if text is not None]


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
    except OSError as error:
        raise NoNetwork(
            f"The corpus {spec.name!r} is streamed from the hub, which cannot be reached: use "
            "'sample' or 'bible' (bundled), or a local .txt, .jsonl or .parquet file."
        ) from error
