"""The arrangements of the two front tokens, and effects as differences of means over them."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

FACTORS = {"standing_first": "first", "position_zero": "position 0", "start_token": "start token"}
"""The properties of the target, whose main effects are values of these names, in words."""


class Arrangement(NamedTuple):
    """Which properties the target has; the filler takes the other place and the other id."""

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


def arrangements_of(scheme: str) -> list[Arrangement]:
    """Return the arrangements: eight for learned positions, else four, with ids in order.

    The first two have the target first, at position 0: the start token, then the ordinary token.
    """
    every = [Arrangement(*flags) for flags in product((True, False), repeat=3)]
    return [
        arrangement for arrangement in every if scheme == "learned" or arrangement.ids == [0, 1]
    ]


def subsets(arrangements: Sequence[Arrangement]) -> list[tuple[str, ...]]:
    """Return all sets of properties that can be told apart, single ones first."""
    names = [name for name in FACTORS if len(arrangements) == 8 or name != "position_zero"]
    sizes = range(1, len(names) + 1)
    return [subset for size in sizes for subset in combinations(names, size)]


def interactions(arrangements: Sequence[Arrangement]) -> list[str]:
    """Return the interactions in words, such as ``first × start token``."""
    words = [
        [FACTORS[name] for name in subset] for subset in subsets(arrangements) if len(subset) > 1
    ]
    return ["all three" if len(terms) == len(FACTORS) else " × ".join(terms) for terms in words]


def contrasts(arrangements: Sequence[Arrangement]) -> Float[np.ndarray, "effect arrangement"]:
    """Return the weights of the arrangements in every effect, in the order of :func:`subsets`.

    An effect is the mean where the product of its properties' signs is 1, less that where it is -1.
    """
    signs = [
        [np.prod([1 if getattr(one, name) else -1 for name in subset]) for one in arrangements]
        for subset in subsets(arrangements)
    ]
    return np.array(signs) * (2 / len(arrangements))


def numbers(
    seen: Float[np.ndarray, "layer head row front"], arrangements: Sequence[Arrangement]
) -> dict[str, Float[np.ndarray, "layer head ..."]]:
    """Return all values from the mean attention to the two front keys in every row.

    Rows are the arrangements, then the start token moved back by each distance, then two with
    exchanged keys: the ordinary first key under the start token's queries, and the reverse.
    """
    count = len(arrangements)
    places = [one.place for one in arrangements]
    effects = seen[:, :, range(count), places] @ contrasts(arrangements).T
    several = subsets(arrangements)
    single = sum(len(subset) == 1 for subset in several)
    (ss, oo), (os, so) = (np.moveaxis(seen[:, :, rows, 0], 2, 0) for rows in ([0, 1], [-2, -1]))
    return {
        "sink": ss,
        "attention": seen[:, :, :count],
        "position_zero": np.full_like(ss, np.nan),
        **{subset[0]: effects[..., place] for place, subset in enumerate(several[:single])},
        "interaction": effects[..., single:],
        "exchanged": np.moveaxis(np.array([[ss, so], [os, oo]]), (0, 1), (-2, -1)),
        "key_effect": (ss - os + so - oo) / 2,
        "query_effect": (ss - so + os - oo) / 2,
        "moved_back": seen[:, :, [0, *range(count, seen.shape[2] - 2)], 0],
    }
