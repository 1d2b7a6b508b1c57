"""Sequences of random tokens: which place holds which token, and how the tokens are drawn.

A layout says for every position which of the drawn tokens stands there, so that the same token can
stand at several places. All drawn tokens of one sequence differ from each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest

__all__ = [
    "ROLES",
    "START",
    "Layout",
    "TokenPool",
    "pairs_layout",
    "random_layout",
    "second_positions",
    "sequences",
    "twice_layout",
]

START = -1
"""In a layout: the start token."""

ROLES = ("start", "R", "[A]", "[B]", "[C]", "[D]", "[E]", "[F]")
"""What stands at a position; candidates from [B] on."""

MOST_CANDIDATES = len(ROLES) - 3


@dataclass(frozen=True)
class Layout:
    """Which token stands where.

    Attributes:
        places: for every position the number of a drawn token, or ``START``.
        pairs: positions of the ``[A]`` whose followers are the candidates, in their order.
    """

    places: tuple[int, ...]
    pairs: tuple[int, ...] = ()

    @property
    def draws(self) -> int:
        """Number of tokens to be drawn."""
        return max(self.places) + 1

    @property
    def candidates(self) -> tuple[int, ...]:
        """Positions of the candidates, one after each ``[A]``."""
        return tuple(place + 1 for place in self.pairs)

    def roles(self) -> list[int]:
        """Return for every position its role, an index into :data:`ROLES`."""
        named = 1 + len(self.pairs) if self.pairs else 0
        return [0 if t == START else t + 2 if t < named else 1 for t in self.places]

    def others(self) -> list[int]:
        """Return the positions of tokens that are neither ``[A]`` nor candidates."""
        return [place for place, role in enumerate(self.roles()) if role == 1]


@dataclass(frozen=True)
class TokenPool:
    """What random tokens are drawn from.

    Attributes:
        pool: the token ids that may be drawn, ascending: special tokens are not among them.
        start: id of the start token, or None where sequences have none.
        seed: equal seeds draw equal tokens, however they are cut into batches.
    """

    pool: np.ndarray
    start: int | None
    seed: int


def sequences(layout: Layout, source: TokenPool, stream: int, samples: Iterable[int]) -> Tokens:
    """Return token ids ``[text, pos]`` of some samples of a layout.

    Every sample has a generator of its own, seeded by seed, stream and number.

    Raises:
        BadRequest: fewer tokens in the pool than the layout needs, or no start token.
    """
    if layout.draws > len(source.pool):
        raise BadRequest(
            f"The sequences need {layout.draws} different tokens and the model has "
            f"{len(source.pool)}: ask for shorter ones."
        )
    if START in layout.places and source.start is None:
        raise BadRequest("The model has no start token: run it without one.")
    rows = []
    for sample in samples:
        generator = np.random.default_rng([source.seed, stream, sample])
        rows.append(generator.choice(len(source.pool), size=layout.draws, replace=False))
    drawn = source.pool[np.array(rows, dtype=np.int64)]
    starts = np.full((len(rows), 1), START if source.start is None else source.start)
    return np.concatenate([drawn, starts], axis=1)[:, list(layout.places)].astype(np.int64)


def random_layout(length: int, start_token: bool) -> Layout:
    """Return the layout of random tokens, all different."""
    first = [START] * start_token
    return Layout((*first, *range(length - len(first))))


def twice_layout(period: int, start_token: bool) -> Layout:
    """Return the layout of ``period`` random tokens, twice."""
    return Layout((*[START] * start_token, *range(period), *range(period)))


def second_positions(length: int, first: int, candidates: int, start_token: bool) -> range:
    """Return where the last pair may stand: after the others, and before the last token.

    Raises:
        BadRequest: there is no room.
    """
    found = range(first + 2 * (candidates - 1), length - 2)
    if first < start_token:
        raise BadRequest(
            f"Expected the first [A] at position {int(start_token)} or later, after the start "
            f"token; got {first}."
        )
    if not found:
        need = first + 2 * candidates + 1
        raise BadRequest(
            f"{candidates} pairs from position {first} on and a last [A] need {need} tokens or "
            f"more, got {length}: ask for longer sequences, or earlier pairs."
        )
    return found


def pairs_layout(
    length: int, first: int, second: int, candidates: int, start_token: bool
) -> Layout:
    """Return the layout ``... [A][B] ... [A][C] ... [A]``.

    The pairs stand at ``first``, ``first + 2`` and so on; the last of them stands at ``second``.
    Token 0 is ``[A]``, tokens 1 to ``candidates`` follow it, the rest are random.

    Raises:
        BadRequest: there is no room, or not at ``second``.
    """
    room = second_positions(length, first, candidates, start_token)
    if second not in room:
        raise BadRequest(
            f"Expected the last pair's [A] at position {room[0]} to {room[-1]}, got {second}."
        )
    pairs = (*range(first, first + 2 * (candidates - 1), 2), second)
    places = [START] * start_token + [0] * (length - start_token)
    fixed = set(range(int(start_token))) | {length - 1}
    for number, place in enumerate(pairs):
        places[place + 1] = number + 1
        fixed |= {place, place + 1}
    for number, place in enumerate(sorted(set(range(length)) - fixed)):
        places[place] = candidates + 1 + number
    return Layout(tuple(places), pairs)
