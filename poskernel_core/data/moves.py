"""Moves of attention such as ``36>34, pirate>ninja``, the words they name; lists of heads."""

import re
from collections.abc import Sequence
from contextlib import suppress

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell

MAX_DIGITS = 9
_WORD = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")


def parse_moves(text: str, words: Sequence[str]) -> dict[int, list[int]]:
    """Parse moves, separated by commas; return the new keys of every row named in them.

    A move is ``row>key``. Each side is a position or a word of the prompt. A word as row means
    the first token of each of its occurrences. A word as key means the last token of its latest
    occurrence at or before the row. If a row has several keys, they share its attention. ``words``
    are the texts of the prompt's tokens.
    """
    moves: dict[int, list[int]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        row_text, arrow, key_text = (side.strip() for side in part.partition(">"))
        if not (row_text and arrow and key_text):
            raise BadRequest(
                f"A move is written row>key, such as 36>34 or pirate>ninja; got {part!r}."
            )
        for row in _rows(row_text, words):
            keys, key = moves.setdefault(row, []), _key(key_text, row, words)
            if key not in keys:
                keys.append(key)
    if not moves:
        raise BadRequest("Expected moves such as 36>34 or pirate>ninja, got none.")
    return moves


def _rows(text: str, words: Sequence[str]) -> list[int]:
    if _is_number(text):
        return [_position(text, words)]
    places = [first for first, _ in _places(text, words)]
    if not places:
        raise BadRequest(f"The prompt has no word {text!r}: name one of its words or positions.")
    return places


def _key(text: str, row: int, words: Sequence[str]) -> int:
    if _is_number(text):
        key = _position(text, words)
        if key > row:
            raise BadRequest(
                f"Position {row} cannot attend to position {key}, which comes after it: choose a "
                f"key from 0 to {row}."
            )
        return key
    places = [last for _, last in _places(text, words) if last <= row]
    if not places:
        raise BadRequest(
            f"The prompt has no word {text!r} at or before position {row}: name another key."
        )
    return places[-1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _position(text: str, words: Sequence[str]) -> int:
    position = int(text)
    if position >= len(words):
        raise BadRequest(
            f"Position {position} is outside the prompt: choose 0 to {len(words) - 1}."
        )
    return position


def _places(word: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and last token of every occurrence of a whole word in the prompt."""
    token_at = [token for token, text in enumerate(words) for _ in text]
    before, after = (r"(?<!\w)" * word[0].isalnum(), r"(?!\w)" * word[-1].isalnum())
    matches = re.finditer(before + re.escape(word) + after, "".join(words))
    return [(token_at[match.start()], token_at[match.end() - 1]) for match in matches]


def parse_layers(text: str, n_layers: int) -> list[int]:
    """Parse a list of layers such as ``0-3, 5``; return them in ascending order."""
    layers: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = (side.strip() for side in part.partition("-"))
        if not (_is_number(first) and _is_number(last or first)):
            raise BadRequest(f"Layers are written such as 0-3 or 0,2; got {text!r}.")
        if max(int(first), int(last or first)) >= n_layers:
            layers.clear()
            break
        layers |= set(range(int(first), int(last or first) + 1))
    if not layers:
        raise BadRequest(
            f"Expected layers from 0 to {n_layers - 1} such as 0-{n_layers - 1}, got {text!r}."
        )
    return sorted(layers)


def parse_cells(text: str, n_layers: int, n_heads: int) -> list[tuple[int, int]]:
    """Parse a list of heads such as ``L0H3, L1H4``; return them in ascending order."""
    cells = [parse_cell(part, n_layers, n_heads) for part in text.replace(",", " ").split()]
    if not cells:
        raise BadRequest("Expected heads such as L0H3, L1H4, got none.")
    return sorted(set(cells))


def words_of(prompt: str) -> list[str]:
    """Return the words of a prompt that a move can name, in order of first occurrence.

    Numbers are left out, because a move reads them as positions. The signs , and > are left out
    too, because they separate the parts of moves.
    """
    words = dict.fromkeys(_WORD.findall(prompt))
    return [word for word in words if not word.isdigit() and word not in ",>"]


def fitting(moves: Sequence[str], prompt: str) -> list[str]:
    """Return the moves whose words the prompt contains.

    A position fits if the prompt has at least that many words, because it has no fewer tokens than
    words.
    """
    valid = []
    for move in moves:
        with suppress(BadRequest):
            parse_moves(move, _PIECE.findall(prompt))
            valid.append(move)
    return valid
