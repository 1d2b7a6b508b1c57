"""Build the two bundled texts: `python tools/build_texts.py CORPUS`.

`bible.jsonl.gz` holds whole chapters of the King James Version, as printed by the command `bible`
of the Debian packages `bible-kjv` and `bible-kjv-text`. `sample.jsonl.gz` holds public-domain
pieces that no demo model was trained on. The same corpus gives the same bytes.
"""

import argparse
import gzip
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdout import PUBLIC_DOMAINS, TEXTS, Piece, chapter_lines, is_held_out, read_pieces

SAMPLE_CHARS = 1_250_000
MIN_CHARS = 2_000
MAX_ODD_SHARE = 0.08

# Chapters long enough for a query at position 1000, with their length in GPT-2 tokens, counted with
# the byte-pair encoding that OpenAI published for GPT-2 (which this project does not ship).
CHAPTERS = {
    "Genesis 24": 2355,
    "Exodus 12": 1829,
    "Numbers 22": 1581,
    "Deuteronomy 28": 2574,
    "Judges 9": 2282,
    "1 Samuel 17": 2214,
    "2 Samuel 13": 1561,
    "1 Kings 8": 2627,
    "Nehemiah 9": 1771,
    "Psalms 78": 1584,
    "Ezekiel 16": 2399,
    "Daniel 11": 1840,
    "Matthew 26": 2105,
    "Luke 1": 2000,
    "John 6": 1911,
    "Acts 7": 1813,
}

Record = dict[str, str | int]


def main() -> None:
    """Write both files; the sample leaves out what the chapters contain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="folder of .jsonl[.xz|.gz] or .txt files")
    corpus = parser.parse_args().corpus
    TEXTS.mkdir(parents=True, exist_ok=True)
    bible = TEXTS / "bible.jsonl.gz"
    write(bible, [chapter(title, tokens) for title, tokens in CHAPTERS.items()])
    write(TEXTS / "sample.jsonl.gz", sample(corpus, chapter_lines(bible)))


def chapter(title: str, tokens: int) -> Record:
    """One chapter, a verse a line, without verse numbers."""
    every_verse = title.replace(" ", "") + ":1-200"
    command = ["bible", "-f", every_verse]
    verses = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"^\S+:\d+ ", "", verses.strip(), flags=re.MULTILINE)
    return {"domain": "bible", "title": title, "gpt2_tokens": tokens, "text": text}


def sample(corpus: Path, lines: frozenset[str]) -> list[Record]:
    """Held-out prose of every public domain, interleaved, `SAMPLE_CHARS` characters in all."""
    pools: dict[str, list[Piece]] = {domain: [] for domain in PUBLIC_DOMAINS}
    for piece in read_pieces(corpus):
        if piece.domain in pools and is_held_out(piece, frozenset()) and is_prose(piece, lines):
            pools[piece.domain].append(piece)
    for pool in pools.values():
        pool.sort(key=lambda piece: piece.draw)
    records, size = [], 0
    for piece in interleave(pools.values()):
        if size >= SAMPLE_CHARS:
            break
        records.append({"domain": piece.domain, "text": piece.text.strip()})
        size += len(piece.text)
    return records


def is_prose(piece: Piece, lines: frozenset[str]) -> bool:
    """Whether a piece is long enough, no index or table, and apart from the bundled chapters."""
    odd = sum(not (c.isalpha() or c in " \n.,;:'\"!?-") for c in piece.text)
    apart = lines.isdisjoint(piece.text.split("\n"))
    return len(piece.text) >= MIN_CHARS and odd <= MAX_ODD_SHARE * len(piece.text) and apart


def interleave(pools: Iterable[list[Piece]]) -> Iterator[Piece]:
    """All pieces, each pool spread evenly over the whole, so that any prefix is mixed."""
    placed = [((i + 0.5) / len(pool), piece) for pool in pools for i, piece in enumerate(pool)]
    return (piece for _, piece in sorted(placed, key=lambda pair: (pair[0], pair[1].draw)))


def write(path: Path, records: list[Record]) -> None:
    """Write one JSON object a line, compressed; equal records give equal bytes."""
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(lines.encode("utf-8"), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main()
