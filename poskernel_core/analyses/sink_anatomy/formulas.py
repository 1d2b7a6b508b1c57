"""The arrangements of the two front tokens, and effects as differences of means over them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from jaxtyping import Float

MAIN = ("standing_first", "position_zero", "start_token")
"""The main effects, by the names of the values."""

_WORDS = {"standing_first": "first", "position_zero": "position 0", "start_token": "start token"}


@dataclass(frozen=True)
class Arrangement:
    """One order of target and filler.

    Attributes:
        standing_first: whether the target stands before the filler.
        position_zero: whether the target has position id 0, and the filler 1.
        start_token: whether the target is the start token, or an ordinary one.
    """

    standing_first: bool
    position_zero: bool
    start_token: bool

    @property
    def place(self) -> int:
        """The place of the target among the two front tokens."""
        return int(not self.standing_first)

    @property
    def ids(self) -> list[int]:
        """The position ids of the two places."""
        return [0, 1] if self.standing_first == self.position_zero else [1, 0]

    def __str__(self) -> str:
        """Return the arrangement in words: ``filler (id 1), start token (id 0)``."""
        names = ["start token" if self.start_token else "ordinary token", "filler"]
        pairs = zip(names if self.standing_first else names[::-1], self.ids, strict=True)
        return ", ".join(f"{name} (id {number})" for name, number in pairs)


def factors_of(scheme: str) -> tuple[str, ...]:
    """Return the names of the factors that a scheme of positions allows."""
    return MAIN if scheme == "learned" else (MAIN[0], MAIN[2])


def arrangements_of(scheme: str) -> list[Arrangement]:
    """Return the arrangements: eight for learned positions, else four, with ids in order.

    The first two have the target first, at position 0: the start token, then the ordinary token.
    """
    sides = (True, False)
    if scheme == "learned":
        return [Arrangement(*each) for each in product(sides, repeat=3)]
    return [Arrangement(first, first, start) for first, start in product(sides, repeat=2)]


def subsets(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all sets of factors, single ones first."""
    sizes = range(1, len(factors) + 1)
    return [each for size in sizes for each in combinations(factors, size)]


def together(factors: Sequence[str]) -> list[str]:
    """Return the interactions in words, such as ``first × start token``."""
    several = [each for each in subsets(factors) if len(each) > 1]
    return [
        "all three" if each == MAIN else " × ".join(_WORDS[name] for name in each)
        for each in several
    ]


def contrasts(
    arrangements: Sequence[Arrangement], factors: Sequence[str]
) -> Float[np.ndarray, "effect arrangement"]:
    """Return the weights of the arrangements in every effect, in the order of :func:`subsets`.

    An effect is the mean where the product of its factors' signs is 1, less the mean where it is
    -1.
    """
    signs = {name: [1 if getattr(one, name) else -1 for one in arrangements] for name in factors}
    rows = [np.prod([signs[name] for name in several], axis=0) for several in subsets(factors)]
    return np.stack(rows) * (2 / len(arrangements))


def numbers(
    seen: Float[np.ndarray, "layer head row front"],
    arrangements: Sequence[Arrangement],
    factors: Sequence[str],
) -> dict[str, Float[np.ndarray, "layer head ..."]]:
    """Return all values from the mean attention to the two front keys in every row.

    Rows are the arrangements, then the start token moved back by each distance, then two with
    exchanged keys: the ordinary first key under the start token's queries, and the reverse.
    """
    count = len(arrangements)
    attention, moved, crossed = np.split(seen, [count, -2], axis=2)
    places = [one.place for one in arrangements]
    effects = attention[:, :, range(count), places] @ contrasts(arrangements, factors).T
    start, ordinary = attention[:, :, 0, 0], attention[:, :, 1, 0]
    ordinary_key, start_key = crossed[:, :, 0, 0], crossed[:, :, 1, 0]
    missing = np.full_like(start, np.nan)
    return {
        "sink": start,
        "attention": attention,
        **dict.fromkeys(MAIN, missing),
        **{name: effects[..., place] for place, name in enumerate(factors)},
        "interaction": effects[..., len(factors) :],
        "exchanged": np.stack(
            [np.stack([start, start_key], -1), np.stack([ordinary_key, ordinary], -1)], -2
        ),
        "key_effect": (start - ordinary_key + start_key - ordinary) / 2,
        "query_effect": (start - start_key + ordinary_key - ordinary) / 2,
        "moved_back": np.concatenate([start[..., None], moved[..., 0]], axis=-1),
    }
