"""The texts of the demo models: `python tools/demo_texts.py CORPUS` builds the two bundled ones.

`bible.jsonl.gz` holds whole chapters of the King James Version, as printed by the command `bible`
of the Debian packages `bible-kjv` and `bible-kjv-text`. `sample.jsonl.gz` holds public-domain
pieces that no demo model was trained on. The same corpus gives the same bytes.

What is held out from training depends only on the text: pieces of public-domain texts whose hash
falls in the lowest `SHARE`, and pieces that contain a line of a bundled Bible chapter.
"""

import argparse
import gzip
import hashlib
import json
import lzma
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PUBLIC_DOMAINS = ("bible", "shakespeare", "gutenberg", "politics")
SHARE = 0.11
PIECE_CHARS = 6000
SAMPLE_CHARS = 1_250_000
MIN_CHARS = 2_000
MAX_ODD_SHARE = 0.08
TEXTS = Path(__file__).resolve().parent.parent / "poskernel_core" / "demo" / "texts"
BIBLE, SAMPLE = TEXTS / "bible.jsonl.gz", TEXTS / "sample.jsonl.gz"
OPENERS = {".xz": lzma.open, ".gz": gzip.open}

# Chapters long enough for a query at position 1000, with their length in GPT-2 tokens, counted with
# the byte-pair encoding that OpenAI published for GPT-2 (which this project does not ship).
CHAPTERS = {
    "Genesis 24": 2355, "Exodus 12": 1829, "Numbers 22": 1581, "Deuteronomy 28": 2574,
    "Judges 9": 2282, "1 Samuel 17": 2214, "2 Samuel 13": 1561, "1 Kings 8": 2627,
    "Nehemiah 9": 1771, "Psalms 78": 1584, "Ezekiel 16": 2399, "Daniel 11": 1840,
    "Matthew 26": 2105, "Luke 1": 2000, "John 6": 1911, "Acts 7": 1813,
}  # fmt: skip

Record = dict[str, str | int]


@dataclass(frozen=True)
class Piece:
    """Some consecutive whole lines of a text, up to about `PIECE_CHARS` characters."""

    domain: str
    text: str

    @property
    def draw(self) -> float:
        """A number in [0, 1) from the text's hash, uniform over texts."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    def is_held_out(self, lines: frozenset[str]) -> bool:
        """Whether the piece is held out from training, given the lines of the bundled chapters."""
        drawn = self.draw < SHARE or not lines.isdisjoint(self.text.split("\n"))
        return self.domain in PUBLIC_DOMAINS and drawn

    def is_prose(self) -> bool:
        odd = sum(not (c.isalpha() or c in " \n.,;:'\"!?-") for c in self.text)
        return len(self.text) >= MIN_CHARS and odd <= MAX_ODD_SHARE * len(self.text)


def read_pieces(corpus: Path) -> Iterator[Piece]:
    """Yield every piece of every .jsonl[.xz|.gz] or .txt file of a folder, ordered by file name."""
    for path in sorted(corpus.iterdir()):
        if path.name.endswith((".jsonl", ".jsonl.xz", ".jsonl.gz", ".txt")):
            for domain, text in documents(path):
                for part in split_lines(repair(text)):
                    yield Piece(domain, part)


def training_pieces(corpus: Path) -> Iterator[Piece]:
    """Return the pieces of a folder that a demo model may be trained on."""
    lines = chapter_lines()
    return (piece for piece in read_pieces(corpus) if not piece.is_held_out(lines))


def documents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield domain and text of each document of a file; the default domain is the file's name."""
    name = path.name.split(".")[0]
    with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8") as file:
        records = [{"text": file.read()}] if path.suffix == ".txt" else map(json.loads, file)
        for record in records:
            yield record.get("domain", name), record["text"]


def chapter_lines() -> frozenset[str]:
    return frozenset(line for _, text in documents(BIBLE) for line in text.split("\n"))


def repair(text: str) -> str:
    """Undo the decoding of UTF-8 as Latin-1; leave any other text unchanged."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def split_lines(text: str, limit: int = PIECE_CHARS) -> Iterator[str]:
    """Split a text at line ends into parts of at most `limit` characters (or one longer line)."""
    part: list[str] = []
    size = 0
    for line in text.split("\n"):
        if part and size + len(line) > limit:
            yield "\n".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    yield "\n".join(part)


def chapter(title: str, tokens: int) -> Record:
    """Return a chapter, one verse per line, without verse numbers."""
    command = ["bible", "-f", title.replace(" ", "") + ":1-200"]
    verses = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"^\S+:\d+ ", "", verses.strip(), flags=re.MULTILINE)
    return {"domain": "bible", "title": title, "gpt2_tokens": tokens, "text": text}


def sample(corpus: Path) -> list[Record]:
    """Return held-out prose that does not overlap the chapters, `SAMPLE_CHARS` characters in total.

    Each domain is spread evenly over the whole, so that any prefix is mixed.
    """
    lines = chapter_lines()
    pools: dict[str, list[Piece]] = {domain: [] for domain in PUBLIC_DOMAINS}
    for piece in read_pieces(corpus):
        apart = lines.isdisjoint(piece.text.split("\n"))
        if apart and piece.is_held_out(frozenset()) and piece.is_prose():
            pools[piece.domain].append(piece)
    placed = [
        ((place + 0.5) / len(pool), piece.draw, piece)
        for pool in pools.values()
        for place, piece in enumerate(sorted(pool, key=lambda each: each.draw))
    ]
    records: list[Record] = []
    size = 0
    for _, _, piece in sorted(placed, key=lambda each: each[:2]):
        if size >= SAMPLE_CHARS:
            break
        records.append({"domain": piece.domain, "text": piece.text.strip()})
        size += len(piece.text)
    return records


def write(path: Path, records: list[Record]) -> None:
    """Write one JSON object per line, compressed; equal records give equal bytes."""
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(lines.encode("utf-8"), compresslevel=9, mtime=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="folder of .jsonl[.xz|.gz] or .txt files")
    asked = parser.parse_args()
    write(BIBLE, [chapter(title, tokens) for title, tokens in CHAPTERS.items()])
    write(SAMPLE, sample(asked.corpus))
