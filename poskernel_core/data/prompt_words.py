"""The words of a prompt, and which moves of attention fit it."""

import re
from collections.abc import Sequence

from poskernel_core.common.errors import BadRequest
from poskernel_core.data.moves import parse_moves

_WORD = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")


def words_of(prompt: str) -> list[str]:
    """Return the words of a prompt that a move can name, in order of first occurrence.

    Numbers are left out, because a move reads them as positions. The signs , and > are left out
    too, because they separate the parts of moves.
    """
    found = dict.fromkeys(_WORD.findall(prompt))
    return [word for word in found if not word.isdigit() and word not in ",>"]


def fitting(moves: Sequence[str], prompt: str) -> list[str]:
    """Return the moves whose words the prompt contains.

    A position fits if the prompt has at least that many words, because it has no fewer tokens than
    words.
    """
    return [move for move in moves if _fits(move, _PIECE.findall(prompt))]


def _fits(move: str, pieces: list[str]) -> bool:
    try:
        return bool(parse_moves(move, pieces))
    except BadRequest:
        return False
