"""Tokenize a long text piece by piece, with the same token ids as for the whole text at once.

A text may be cut at a boundary of the pre-tokenizer, or between two characters that are adjacent in
no token of the vocabulary, because merges (BPE) and the best token sequence (Unigram) are then
independent on both sides. Consecutive pieces overlap, and their tokens must agree in the overlap.
This detects effects of a piece's beginning and end, such as a space added in front.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

import tokenizers

PIECE = 2**16
"""Characters per piece."""
MARGIN = 2**10
"""Characters on which two pieces must agree; also the distance of these from the end of a piece."""
MOST = 2**20
"""Most characters per piece, for texts that cannot be cut earlier."""
LONGEST = 64
"""Longest text, in characters, that a normalizer step may insert."""


def normalizer_steps(normalizer: Any) -> list[Any]:
    """Return a normalizer's steps, flattened; empty for None.

    Raises:
        ValueError: a step inserts a very long text.
    """
    if isinstance(normalizer, tokenizers.normalizers.Sequence):
        inner: Any = normalizer
        return [step for part in inner for step in normalizer_steps(part)]
    for field in ("content", "prepend"):
        length = len(getattr(normalizer, field, ""))
        if length > LONGEST:
            raise ValueError(f"its normalizer puts in texts of {length:,} characters")
    return [] if normalizer is None else [normalizer]


@dataclass
class _Run:
    """The tokens of a piece; ``begin`` is the piece's first character in the text."""

    begin: int
    encoding: tokenizers.Encoding

    def __post_init__(self) -> None:
        self.ids: list[int] = self.encoding.ids
        self.words = self.encoding.word_ids
        self.parts: list[str] = self.encoding.tokens
        self.starts = [self.begin + start for start, _ in self.encoding.offsets]

    def labels(self, first: int, until: int) -> list[tuple[int, int]]:
        """Return (id, start) of the tokens from ``first`` that start before character ``until``."""
        labels = zip(self.ids[first:], self.starts[first:], strict=True)
        return [*takewhile(lambda label: label[1] < until, labels)]


@dataclass(frozen=True)
class Pieces:
    """A tokenizer that encodes long texts piece by piece."""

    backend: tokenizers.Tokenizer

    def encode(self, text: str) -> Iterator[list[int]]:
        """Yield the token ids of a text in consecutive lists, without special tokens.

        Raises:
            ValueError: more than :data:`MOST` characters cannot be cut, or a normalizer expands
                them too much.
        """
        size, taken = PIECE, 0
        run = self.run(text, 0, size)
        while run.begin + size < len(text):
            seam = self._seam(text, run, size, taken)
            if seam is not None:
                until, following, joined = seam
                yield run.ids[taken:until]
                run, taken = following, joined
            elif size < MOST:
                size = min(8 * size, MOST)
                run = self.run(text, run.begin, size)
            else:
                raise ValueError(
                    f"it is encoded piece by piece, and {MOST:,} characters are one piece; break "
                    "them into words or lines"
                )
        yield run.ids[taken:]

    def run(self, text: str, begin: int, size: int) -> _Run:
        """Encode one piece of a text."""
        piece = text[begin : begin + size]
        normal = piece
        for step in self._steps:
            normal = step.normalize_str(normal)
            if len(normal) > 2 * MOST:
                raise ValueError(
                    f"its normalizer makes more than {2 * MOST:,} characters of {len(piece):,}"
                )
        return _Run(begin, self.backend.encode(piece, add_special_tokens=False))

    def _seam(self, text: str, run: _Run, size: int, taken: int) -> tuple[int, _Run, int] | None:
        """Return a run's end (a token index), the next run, and that run's first new token."""
        end = run.begin + size
        cut = self._last_break(run, taken, end - 2 * MARGIN)
        earlier = None if cut is None else self._last_break(run, 0, run.starts[cut] - MARGIN)
        if cut is None or earlier is None:
            return None
        following = self.run(text, run.starts[earlier], size)
        expected = run.labels(cut, end - MARGIN)
        for at, start in enumerate(following.starts):
            same = start == run.starts[cut] and self._breaks(following, at)
            if same and following.labels(at, end - MARGIN) == expected:
                return cut, following, at
        return None

    def _last_break(self, run: _Run, after: int, most: int) -> int | None:
        for at in range(len(run.ids) - 1, after, -1):
            if run.starts[at] <= most and self._breaks(run, at):
                return at
        return None

    def _breaks(self, run: _Run, at: int) -> bool:
        if at == 0:
            return False
        if run.words[at] != run.words[at - 1]:
            return True
        before, behind = run.parts[at - 1], run.parts[at]
        return self._by_merges and before[-1:] + behind[:1] not in self._pairs

    @cached_property
    def _steps(self) -> list[Any]:
        return normalizer_steps(self.backend.normalizer)

    @cached_property
    def _by_merges(self) -> bool:
        """Tell whether the vocabulary's tokens consist of the characters they encode."""
        model: Any = self.backend.model
        return isinstance(model, tokenizers.models.Unigram) or (
            isinstance(model, tokenizers.models.BPE)
            and not model.continuing_subword_prefix
            and not model.end_of_word_suffix
            and not model.dropout
        )

    @cached_property
    def _pairs(self) -> frozenset[str]:
        """All pairs of characters that are adjacent in some token."""
        known = self.backend.get_vocab()
        return frozenset(a + b for token in known for a, b in pairwise(token))
