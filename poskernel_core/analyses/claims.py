"""What may be said of a result: numbers held against limits, claims about a head, and counts.

A number passes a limit if its whole 95 % interval does, and fails if the whole interval is below.
The sentences of each topic's views are made of these; :mod:`poskernel_core.analyses.reading` puts
the claims about one head together.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from poskernel_core.analyses.base import Question
from poskernel_core.analyses.discoveries import Condition, Heads, Side, discovered
from poskernel_core.common.heads import head_name
from poskernel_core.common.jackknife import Estimate, difference
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import TRACE, brief, counted

ATTENTION = 0.3
"""Smallest share of attention for the claim that a head looks somewhere."""

HALF = 0.5
"""Smallest share with which position or content decides the scores, and smallest distance at which
a head's mean attention is far from its kernel."""

WEAK = 0.03
"""Share of attention below which a head does not look somewhere."""

EFFECT = 0.1
"""Smallest effect on a share of attention that counts."""

ALL_HEADS = ("layer", "head")
SCALE = "total variation: 0 equal, 1 disjoint"
_NOUNS = {"tokens": "token", "nats": "nat", "ln tokens": "nat", "score (nats)": "nat"}

Passes = Literal["yes", "about", "no"]
Stands = Literal["yes", "about", "weakly", "below", "no"]
"""How a claim stands: between its two limits it holds weakly; below the first, and open whether
below the second, there is a number and no word for it."""


@dataclass(frozen=True)
class Number:
    """A number with the ends of its 95 % interval, NaN where these are unknown.

    The ends of an exact number are the number.
    """

    value: float
    low: float
    high: float

    @classmethod
    def within(cls, value: float, reach: float) -> "Number":
        """Return a number with an interval of this half width."""
        return cls(value, value - reach, value + reach)

    def passes(self, limit: float) -> Passes | None:
        """Return whether the number is at or above a limit; None if it is NaN.

        Where its interval is unknown it is "about".
        """
        if math.isnan(self.value):
            return None
        if self.low >= limit:
            return "yes"
        return "no" if self.high < limit else "about"

    def sign(self, limit: float = 0.0) -> int:
        """Return 1 if the interval is above a limit, -1 if it is below, else 0."""
        if self.value == limit:
            return 0
        return {"yes": 1, "no": -1}.get(self.passes(limit) or "", 0)

    def __sub__(self, other: "Number") -> "Number":
        """Return the difference, as of independent numbers."""
        pair = (Estimate(*map(np.asarray, (n.value, n.low, n.high))) for n in (self, other))
        return Number(*map(float, difference(*pair)))

    @property
    def trace(self) -> str:
        """Return the value as text, a share near 0 without its power of ten."""
        return str(self) if abs(self.value) >= TRACE else f"below {TRACE:g}"

    def __str__(self) -> str:
        """Return the value as sentences print it, with three digits at most: ``0.87``.

        It ends at the latest where its error ends.
        """
        error = (self.high - self.low) / 4
        last = 1 - math.floor(math.log10(error)) if error > 0 and math.isfinite(error) else 99
        return brief(round(self.value, last) if math.isfinite(self.value) else self.value)


@dataclass(frozen=True)
class Claim:
    """What a number says of a head.

    Attributes:
        predicate: what is claimed, as :data:`reading.PARTS` lists it.
        text: a clause about the head, in which ``{it}`` or ``{its}`` stands for its name.
        number: the number that decides; None if it is exact.
        label: what a head is of which it holds: ``a sink``.
        passes: whether it holds; "about" if the number's interval holds the limit.
        limit: the limit that decides, as text.
        fails: what a head is of which it does not hold: ``no sink``.
    """

    predicate: str
    text: str
    number: Number
    label: str = ""
    passes: Stands = "yes"
    limit: str = ""
    fails: str = ""

    def sentence(self, who: str, at: str = "") -> str:
        """Return the claim as a sentence; empty if the interval holds the limit."""
        if self.passes == "about":
            return ""
        word = self.word
        limit = f" (limit {self.limit})" if self.limit and word else ""
        return capital(f"{self.named(who)}{at}{f': {word}' if word else ''}{limit}.")

    def clause(self, who: str = "") -> str:
        """Return the claim as a part of a sentence that begins with the head's name or "it"."""
        word = self.word
        if self.label and self.passes == "about":
            word = f"{self.label} or not: its interval holds the limit {self.limit}"
        return f"{self.named(who)}{f' ({word})' if word else ''}"

    @property
    def word(self) -> str:
        """Return what the head is, weakly is, or is not; empty where that is open."""
        words = {"yes": self.label, "weakly": f"weakly {self.label}", "no": self.fails}
        return words.get(self.passes, "")

    def named(self, who: str = "") -> str:
        """Return the clause with a head's name, or with "it"."""
        return self.text.format(it=who or "it", its=f"{who}'s" if who else "its")


@dataclass(frozen=True)
class Head:
    """One head in a result of all heads, or in a result about this head alone."""

    result: Result
    place: tuple[int, ...] = ()

    def number(self, value: str, *place: int) -> Number:
        """Return a number; a value declared without an error counts as exact."""
        return number_of(self.result, value, *self.place, *place)

    def word(self, value: str) -> str | None:
        """Return the name of a kind; None where the head has none, or it is not in the result."""
        code = float(self.result.values[value][self.place]) if self.has(value) else math.nan
        words = self.result.labels.get(value, ())
        return None if math.isnan(code) or code < 0 else words[int(code)]

    def has(self, *values: str) -> bool:
        """Return whether the result has all these values."""
        return self.result.values.keys() >= {*values}

    def param(self, name: str) -> Any:
        """Return a parameter of the result, or its default."""
        return param(self.result, name)


Claims = Callable[[Head], Iterator[Claim]]


def spoken(*claims: Claims) -> Callable[[Result], str]:
    """Return a rule that says the first claim about one head that its result supports."""
    return lambda result: told(result, (one for rule in claims for one in rule(Head(result))))


def told(result: Result, claims: Iterable[Claim]) -> str:
    """Return the first claim that does not hold its limit, as a sentence about a result's head."""
    every = (claim.sentence(who(result), at_query(result)) for claim in claims)
    return next(filter(None, every), "")


def at_limit(
    predicate: str,
    number: Number,
    limit: float,
    text: str,
    label: str,
    fails: str = "",
    weak: float | None = None,
) -> Iterator[Claim]:
    """Yield a claim that holds where a number passes a limit; nothing if the number is NaN.

    It fails where the number is below a second limit, ``weak``, and holds weakly where it lies
    between the two; without ``weak`` nothing is denied.
    """
    passes: Stands | None = number.passes(limit)
    if passes == "no":
        lower = None if weak is None else number.passes(min(weak, limit))
        passes = "no" if lower == "no" else "weakly" if lower == "yes" else "below"
    if passes:
        decides = weak if passes == "no" and weak is not None else limit
        yield Claim(predicate, text, number, label, passes, f"{decides:g}", fails)


def number_of(result: Result, name: str, *place: int) -> Number:
    """Return a value of a result at a place along its axes; one without an error is exact."""
    return Number(*(float(part) for part in result.estimate_of(name, *place)))


def passing(
    result: Result, name: str, limit: float | np.ndarray, stretched: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return where a value passes a limit, and where it fails: :meth:`Number.passes` of arrays.

    ``stretched`` is the factor by which the ends of the interval are farther away than at 95 %.
    """
    value, low, high = result.estimate_of(name)
    with np.errstate(invalid="ignore"):
        return (
            np.asarray(value - stretched * (value - low) >= limit),
            np.asarray(value + stretched * (high - value) < limit),
        )


def param(result: Result, name: str) -> Any:
    """Return a parameter of a result, or its default."""
    fields = Question.questions[result.analysis].params.model_fields
    return result.params.get(name, fields[name].default)


def who(result: Result) -> str:
    """Return the head that a result is about, such as ``L3H7``."""
    if "head" in result.chosen:
        return head_name(result.chosen["layer"], result.chosen["head"])
    return str(param(result, "head")).strip().upper()


def has(result: Result, axes: tuple[str, ...], *names: str) -> bool:
    """Return whether a result has all these values, the first of them with these axes."""
    return result.values.keys() >= {*names} and result.axes[names[0]] == axes


def at_last(result: Result) -> Result:
    """Return a result at its last query position, if it has several."""
    if "query" not in result.coordinates:
        return result
    return result.select(query=int(result.coordinates["query"][-1]))


def at_query(result: Result) -> str:
    """Return the query position that a result is about: `` at n = 400``; empty if none."""
    query = result.chosen.get("query", result.params.get("query"))
    return "" if query is None else f" at n = {query}"


def amount(value: float, unit: str = "") -> str:
    """Return a number as sentences print it, with a unit that is a word for one thing."""
    return counted(brief(value), _NOUNS[unit]) if unit in _NOUNS else brief(value)


def capital(text: str) -> str:
    """Return a sentence with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def listed(parts: list[str]) -> str:
    """Join clauses with commas and "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def beyond(skip: int) -> str:
    """Return the keys that kernels are about: `` beyond the first 4 keys``."""
    return f" beyond the first {counted(skip, 'key')}" if skip else ""


def alike(every: Estimate, place: tuple[int, ...]) -> int:
    """Return how many other numbers cannot be told from the one at a place."""
    return int(_same(every, place).sum()) - 1


def _same(every: Estimate, place: tuple[int, ...]) -> np.ndarray:
    """Return which numbers cannot be told from the one at a place; it is one of them."""
    low, high = difference(Estimate(*(part[place] for part in every)), every)[1:]
    return np.asarray(np.isfinite(every.value) & ~((low > 0) | (high < 0)))


def below_the_line(every: Estimate, heads: Sequence[tuple[int, int]], count: int) -> str:
    """Return how many heads below the first ones of a list can't be told from the last of these.

    For example ``7 more can't be told from L3H2``; empty if there are none, or if the last one has
    no interval. The list is sorted by the numbers ``every [layer, head]``; of ``heads``, all that
    could be listed, it has the first ``count``. Differences are those of independent numbers, as no
    replicates are stored: of two heads on the same texts, their errors are mostly within a fifth of
    that.
    """
    if not heads[count:]:
        return ""
    last = heads[count - 1]
    if not math.isfinite(every.low[last]):
        return ""
    same = _same(every, last)
    more = sum(bool(same[head]) for head in heads[count:])
    return f"{more:,} more can't be told from {head_name(*last)}" if more else ""


def most(result: Result, name: str, *head: int) -> tuple[int, ...] | None:
    """Return the place of a value, of a head, that is above all others and can be told from them.

    None if there is none.
    """
    every = result.estimate_of(name, *head)
    if np.isnan(every.value).all():
        return None
    top = tuple(map(int, np.unravel_index(np.nanargmax(every.value), every.value.shape)))
    return None if alike(every, top) else top


def named(result: Result, name: str) -> dict[str, Number]:
    """Return the numbers of a value by head (``L3H7``), or else by axis and place (``neuron 5``).

    Those that are not known are left out.
    """
    estimate = result.estimate_of(name)
    return {
        name_at(result, name, at): number_of(result, name, *at)
        for at in np.ndindex(estimate.value.shape)
        if not math.isnan(estimate.value[at])
    }


def name_at(result: Result, name: str, place: tuple[int, ...]) -> str:
    """Return the name of a place along a value's axes."""
    at = {**result.chosen, **dict(zip(result.axes[name], place, strict=True))}
    if "head" in at:
        return head_name(at["layer"], at["head"])
    return " ".join(f"{axis} {at[axis]}" for axis in result.axes[name])


def heads_at(
    result: Result, name: str, noun: str, limit: float | str, *, below: bool = False
) -> str:
    """Say in how many heads of a model, or layer, a value reaches a limit; or in how many neurons.

    The limit is a number, or the name of the parameter that holds it. With ``below``, in how many
    it is smaller. Those are counted of which it is sure among so many, and beside them those of
    which it is open. Empty if it is open for every head, and if there is no such value of all
    heads.
    """
    if result.axes.get(name) not in (ALL_HEADS, ("head",), ("neuron",)):
        return ""
    limit = param(result, limit) if isinstance(limit, str) else limit
    heads = discovered(result, Condition(name, limit, "below" if below else "reaches"))
    against = passing(result, name, limit)[0 if below else 1]
    known, count = int(np.isfinite(result.values[name]).sum()), heads.count
    if not known or not (count or against.sum() == known):
        return ""
    thing = result.axes[name][-1]
    layer = f" of layer {result.chosen['layer']}" if "layer" in result.chosen else ""
    of = f"of {counted(known, thing)}{layer}"
    how = f"{'below ' if below else ''}{limit:g}{'' if below else ' or more'}"
    end = f"it is {_extreme(result, name, smallest=below)}"
    if count:
        return f"{_in(result)} {count} {of} the {noun} is {how}{heads.beside}; {end}."
    return f"{_in(result)} none {of} is the {noun} {how}; {end}."


def heads_range(result: Result, name: str, noun: str) -> str:
    """Say which heads have the largest and the smallest value, if these differ."""
    if result.axes.get(name) not in (ALL_HEADS, ("head",)):
        return ""
    value = result.values[name].astype(float)
    if not np.isfinite(value).any():
        return ""
    ends = (np.unravel_index(find(value), value.shape) for find in (np.nanargmax, np.nanargmin))
    large, small = (number_of(result, name, *map(int, at)) for at in ends)
    if (large - small).sign() <= 0:
        return ""
    layer = f"in layer {result.chosen['layer']} " if "layer" in result.chosen else ""
    start = ", ".join(filter(None, (at_query(result).strip(), f"{layer}the {noun}")))
    extremes = f"{_extreme(result, name)} and {_extreme(result, name, smallest=True)}"
    return f"{capital(start)} is {extremes}."


def _extreme(result: Result, name: str, *, smallest: bool = False) -> str:
    """Say whose value is largest, and how many others may have the largest."""
    value = result.values[name].astype(float)
    find = np.nanargmin if smallest else np.nanargmax
    place = tuple(map(int, np.unravel_index(find(value), value.shape)))
    number, others = amount(float(value[place]), result.units[name]), ""
    if count := alike(result.estimate_of(name), place):
        others = f", not to be told from {counted(count, 'other')}"
    end = "smallest" if smallest else "largest"
    return f"{end} in {name_at(result, name, place)} ({number}{others})"


def _in(result: Result) -> str:
    return f"A{here[2:]}, in" if (here := at_query(result)) else "In"


def of_all(count: int, total: int, noun: str = "head", beside: str = "") -> str:
    """Return ``41 of 270 heads``, or ``None of 32 heads``, and what is told of the others."""
    return f"{count or 'None'} of {total:,} {noun}{'' if total == 1 else 's'}{beside}"


def _once(distance: np.ndarray) -> np.ndarray:
    """Return distances of pairs, each of them once: NaN from the diagonal downwards."""
    return np.where(np.tri(distance.shape[-1], dtype=bool), np.nan, distance)


def pairs_at(result: Result, limit: float, side: Side = "reaches") -> Heads:
    """Return which pairs of kernels are so far apart, or nearer; each pair once."""
    every = Estimate(*map(_once, result.estimate_of("distance")))
    return discovered(result, Condition(every, limit, side))


def pairs_apart(result: Result, alike: float, apart: float, pairs: str) -> str:
    """Say how many pairs of kernels are far apart, and how many nearly equal."""
    far, near = pairs_at(result, apart), pairs_at(result, alike, "below")
    if not far.count and not near.count:
        return ""
    count = int(np.isfinite(_once(result.values["distance"])).sum())
    return (
        f"The kernels of {far.count} of {counted(count, 'pair')} of {pairs} are {apart:g} or "
        f"more apart ({SCALE}){far.beside}, those of {near.count} less than {alike:g}{near.beside}."
    )
