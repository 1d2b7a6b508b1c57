"""Pairs of prompts that are made for a vocabulary, whatever it is."""

from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np

from poskernel_core.analyses.patching.tables import PromptPair
from poskernel_core.common.errors import BadRequest

NAMES = (
    "Mary", "John", "Tom", "James", "Paul", "David", "Sarah", "George", "Henry", "William", "Peter",
    "Simon", "Adam", "Joseph", "Daniel", "Robert", "Michael", "Alice", "Anna", "Jack", "Mark",
    "Anne", "Edward", "Charles", "Emma", "Kate", "Martin", "Frank", "Sam", "Ben", "Alex", "Lisa",
    "Laura", "Susan", "Karen", "Nancy", "Amy", "Rachel", "Emily", "Maria", "Kevin", "Brian",
    "Steven", "Eric", "Scott", "Andrew", "Ryan", "Jason",
)  # fmt: skip
LEAST_NAMES = 20
"""Fewest names that are single tokens for the maker of names."""

TEMPLATES = (
    "When{} and{} went to the store,{} gave a drink to",
    "Then{} and{} had lunch at the cafe, and{} handed the bill to",
    "After{} and{} came home from work,{} read a letter to",
    "While{} and{} were at the station,{} gave a ticket to",
    "As{} and{} sat in the garden,{} passed the bread to",
    "Because{} and{} were late for school,{} gave an apple to",
    "Once{} and{} had found the ring,{} gave it to",
    "Before{} and{} left the house,{} gave the key to",
    "Yesterday{} and{} met at the market, where{} sold a horse to",
    "Last year{} and{} wrote a book together, and{} sent a copy to",
)
"""Two names and one of them again, after which the other one comes: the task of 2211.00593."""

RUNS = ([str(number) for number in range(1, 100)], [*map(chr, range(ord("A"), ord("Z") + 1))])
COUNTED = 4
"""Numbers or letters that are given before the next one."""
HALF = 12
"""Random tokens that are repeated."""

Encode = Callable[[str], list[int]]
Drawn = tuple[list[int], list[int], dict[str, tuple[int, int]]]
"""Ids of a clean and a changed prompt with their answers last, and the places of some tokens."""


def names(encode: Encode, generator: np.random.Generator) -> Iterator[PromptPair]:
    """Yield sentences with two names and one of them again; changed: the other one again.

    Raises:
        BadRequest: the vocabulary has too few names that are one token.
    """
    words = [f" {name}" for name in NAMES if _one_token(encode, f" {name}")]
    if len(words) < LEAST_NAMES:
        raise BadRequest(
            f"The maker 'names' needs {LEAST_NAMES} names that are one token each, and this "
            f"vocabulary has {len(words)} of our {len(NAMES)}: choose another maker, or give pairs."
        )
    couples = [*permutations(words, 2)]
    for number, at in enumerate(generator.permutation(len(couples))):
        rounds, place = divmod(number, len(TEMPLATES))
        goes_on, said = couples[at]
        both = [f"{{answer:{goes_on}}}", f"{{other:{said}}}"]
        both = both[:: -1 if rounds % 2 else 1]  # either is named first
        clean, changed = (
            TEMPLATES[place].format(*both, f"{{again:{last}}}") for last in (said, goes_on)
        )
        yield PromptPair(
            clean=clean, changed=changed, answer=goes_on, other_answer=said,
            template=TEMPLATES[place],
        )  # fmt: skip


def counting(encode: Encode, generator: np.random.Generator) -> Iterator[PromptPair]:
    """Yield numbers or letters in order, and others in order; each is one token."""
    pairs = []
    for run in RUNS:
        good = [_one_token(encode, f" {word}") for word in run]
        starts = [at for at in range(len(run) - COUNTED) if all(good[at : at + COUNTED + 1])]
        pairs += [[run[at : at + COUNTED + 1] for at in both] for both in permutations(starts, 2)]
    for at in generator.permutation(len(pairs)):
        (*clean, answer), (*changed, other) = pairs[at]
        yield PromptPair(
            clean=" ".join(clean), changed=" ".join(changed),
            answer=f" {answer}", other_answer=f" {other}",
        )  # fmt: skip


def copying(pool: np.ndarray, generator: np.random.Generator) -> Iterator[Drawn]:
    """Yield random tokens twice, up to the last; changed: another of them before the answer."""
    while True:
        row = generator.choice(pool, HALF, replace=False).tolist()
        key = int(generator.integers(HALF - 2))
        changed = [*row, *row[:-2], row[key], row[key + 1]]
        yield [*row, *row], changed, {"key": (HALF - 2, key), "follower": (HALF - 1, key + 1)}


def order(pool: np.ndarray, generator: np.random.Generator) -> Iterator[Drawn]:
    """Yield random tokens and one of them again; changed: another one has followed it."""
    while True:
        row = generator.choice(pool, HALF, replace=False).tolist()
        key, other = sorted(generator.permutation(HALF - 1)[:2].tolist())
        if other == key + 1:
            continue
        changed = [*row]
        changed[key + 1], changed[other + 1] = row[other + 1], row[key + 1]
        ends = [[*tokens, row[key], tokens[key + 1]] for tokens in (row, changed)]
        yield ends[0], ends[1], {"key": (key, key), "follower": (key + 1, other + 1)}


def _one_token(encode: Encode, text: str) -> bool:
    """Return whether a text adds one token to another one."""
    before = encode("1 A")
    both = encode(f"1 A{text}")
    return both[:-1] == before


OF_TEXTS = {"names": names, "counting": counting}
OF_TOKENS = {"copying": copying, "order": order}
