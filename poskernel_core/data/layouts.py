"""Sequences of random tokens: layouts of positions, and drawing the tokens.

A layout assigns one of the drawn tokens to every position; a token can be at several positions. All
tokens drawn for a sequence are different.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import NO_START, BadRequest

START = -1
"""Marks the start token in a layout."""

ROLES = ("start", "R", "[A]", "[B]", "[C]", "[D]", "[E]", "[F]")
"""Roles of positions; the candidates start at [B]."""

MAX_CANDIDATES = len(ROLES) - 3


@dataclass(frozen=True)
class Layout:
    """Which drawn token is at which position.

    Attributes:
        places: for every position, the number of a drawn token or ``START``.
        pairs: positions of each ``[A]`` that is followed by a candidate, in the candidates' order.
    """

    places: tuple[int, ...]
    pairs: tuple[int, ...] = ()

    @property
    def draws(self) -> int:
        """Number of tokens to draw."""
        return max(self.places) + 1

    @property
    def candidates(self) -> tuple[int, ...]:
        """Positions of the candidates, one after each ``[A]``."""
        return tuple(place + 1 for place in self.pairs)

    def roles(self) -> list[int]:
        """Return the role of every position, as an index into :data:`ROLES`."""
        named = 1 + len(self.pairs) if self.pairs else 0
        return [0 if t == START else t + 2 if t < named else 1 for t in self.places]

    def others(self) -> list[int]:
        """Return the positions of tokens that are neither ``[A]`` nor candidates."""
        return [place for place, role in enumerate(self.roles()) if role == 1]


@dataclass(frozen=True)
class TokenPool:
    """The source of random tokens.

    Attributes:
        pool: the token ids that may be drawn, ascending; no special tokens.
        start: id of the start token, or None for sequences without one.
        seed: random seed; the drawn tokens do not depend on the batch size.
    """

    pool: np.ndarray
    start: int | None
    seed: int


def sequences(layout: Layout, source: TokenPool, stream: int, samples: Iterable[int]) -> Tokens:
    """Return token ids ``[text, pos]`` of some samples of a layout.

    Every sample has a separate random generator, seeded by seed, stream and sample number.
    """
    if layout.draws > len(source.pool):
        raise BadRequest(
            f"The sequences need {layout.draws} different tokens and the model has "
            f"{len(source.pool)}: ask for shorter ones."
        )
    if START in layout.places and source.start is None:
        raise BadRequest(f"The model has no start token: run it without one ({NO_START}).")
    rows = []
    for sample in samples:
        generator = np.random.default_rng([source.seed, stream, sample])
        rows.append(generator.choice(len(source.pool), size=layout.draws, replace=False))
    drawn = source.pool[np.array(rows, dtype=np.int64)]
    starts = np.full((len(rows), 1), START if source.start is None else source.start)
    return np.concatenate([drawn, starts], axis=1)[:, list(layout.places)].astype(np.int64)


def random_layout(length: int, start_token: bool) -> Layout:
    """Return a layout of different random tokens."""
    first = [START] * start_token
    return Layout((*first, *range(length - len(first))))


def twice_layout(period: int, start_token: bool) -> Layout:
    """Return a layout of ``period`` random tokens, repeated once."""
    return Layout((*[START] * start_token, *range(period), *range(period)))


def second_positions(length: int, first: int, candidates: int, start_token: bool) -> range:
    """Return the possible positions of the last pair: after the others, before the last token."""
    positions = range(first + 2 * (candidates - 1), length - 2)
    if first < start_token:
        raise BadRequest(
            f"Expected the first [A] at position {int(start_token)} or later, after the start "
            f"token; got {first}."
        )
    if not positions:
        need = first + 2 * candidates + 1
        raise BadRequest(
            f"{candidates} pairs from position {first} on and a last [A] need {need} tokens or "
            f"more, got {length}: ask for longer sequences, or earlier pairs."
        )
    return positions


def pairs_layout(
    length: int, first: int, second: int, candidates: int, start_token: bool
) -> Layout:
    """Return the layout ``... [A][B] ... [A][C] ... [A]``.

    The pairs are at ``first``, ``first + 2`` and so on; the last one is at ``second``. Token 0 is
    ``[A]``, tokens 1 to ``candidates`` are the candidates, and the others are random.
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
