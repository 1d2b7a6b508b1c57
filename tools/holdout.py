"""Read a folder of texts, and say which of it the demo models may not be trained on.

The rule has two parts, and both depend on the text alone, so that every tool draws the same line:

* a piece of a public-domain text whose hash falls in the lowest `SHARE` is held out; the bundled
  sample is drawn from these pieces;
* a piece that contains a line of a bundled Bible chapter is held out.
"""

import gzip
import hashlib
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PUBLIC_DOMAINS = ("bible", "shakespeare", "gutenberg", "politics")
SHARE = 0.11
PIECE_CHARS = 6000
TEXTS = Path(__file__).resolve().parent.parent / "poskernel_core" / "demo" / "texts"

_OPENERS = {".xz": lzma.open, ".gz": gzip.open}
_SUFFIXES = (".jsonl", ".jsonl.xz", ".jsonl.gz", ".txt")


@dataclass(frozen=True)
class Piece:
    """A stretch of whole lines, of at most about `PIECE_CHARS` characters."""

    domain: str
    text: str

    @property
    def draw(self) -> float:
        """A number in [0, 1), uniform over texts and fixed for each."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


def read_pieces(corpus: Path) -> Iterator[Piece]:
    """Every piece of every text file in a folder, in the order of the file names."""
    for path in sorted(corpus.iterdir()):
        if path.name.endswith(_SUFFIXES):
            for domain, text in _documents(path):
                for part in split_lines(repair(text)):
                    yield Piece(domain, part)


def training_pieces(corpus: Path) -> Iterator[Piece]:
    """The pieces of a folder that a demo model may be trained on."""
    lines = chapter_lines(TEXTS / "bible.jsonl.gz")
    return (piece for piece in read_pieces(corpus) if not is_held_out(piece, lines))


def is_held_out(piece: Piece, lines: frozenset[str]) -> bool:
    """Whether a piece is kept from training, given the lines of the bundled chapters."""
    if piece.domain not in PUBLIC_DOMAINS:
        return False
    return piece.draw < SHARE or not lines.isdisjoint(piece.text.split("\n"))


def chapter_lines(path: Path) -> frozenset[str]:
    """All lines of a bundled file of texts."""
    return frozenset(line for _, text in _documents(path) for line in text.split("\n"))


def repair(text: str) -> str:
    """Undo UTF-8 that was once read as Latin-1; leave any other text alone."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def split_lines(text: str, limit: int = PIECE_CHARS) -> Iterator[str]:
    """Cut a text at line ends into parts of at most `limit` characters (one line may be longer)."""
    part: list[str] = []
    size = 0
    for line in text.split("\n"):
        if part and size + len(line) > limit:
            yield "\n".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    yield "\n".join(part)


def _documents(path: Path) -> Iterator[tuple[str, str]]:
    """Domain and text of each document of one file; the file's name stands in for a domain."""
    name = path.name.split(".")[0]
    with _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8") as file:
        if path.suffix == ".txt":
            yield name, file.read()
            return
        for line in file:
            record = json.loads(line)
            yield record.get("domain", name), record["text"]
