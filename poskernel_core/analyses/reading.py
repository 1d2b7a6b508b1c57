"""What is said of a head: the claims of all topics in one order; and the finding of a result.

The verdict, the list below it, gallery, notebook and command line print a reading and decide
nothing. ``views.py`` of a topic has ``CLAIMS`` by question if its answers say something of every
head.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from poskernel_core.analyses.claims import Claim, Head, Stands, capital, listed
from poskernel_core.analyses.views import topic
from poskernel_core.common.result import Result

WHERE: Final = ("sink", "learned sink", "look back", "duplicates")
"""Predicates about a share of a head's attention, the largest of which is told first."""

WHY: Final = (
    "kernel",
    "scores",
    "place and content",
    "sources",
    "sink follows",
    "fidelity",
    "foreseen",
    "kernel alone",
    "reach",
    "wavelength",
)
"""Predicates about what explains a head's attention."""

DOES: Final = ("induction", "contextual", "copying")
"""Predicates about what a head does with it."""

PARTS: Final = (WHERE, WHY, DOES)

NEEDS: Final = {"sink follows": "sink"}
"""Predicates that say nothing where another fails: in its own texts a head may have a sink."""

STRENGTH: Final = get_args(Stands)
"""Of the answers that claim one thing, the strongest speaks."""

HOLDS: Final = ("yes", "about")
"""Claims that a verdict may have a clause for."""

CLAUSES = 3
"""Most clauses of a verdict."""


@dataclass(frozen=True)
class Reading:
    """All claims about a head, each with the question that it answers, in the order of telling."""

    claims: tuple[tuple[str, Claim], ...]

    def verdict(self, who: str) -> str:
        """Return the most important claims as a sentence; empty without claims."""
        if not (lead := self._lead()):
            return f"{rest[0][1]}." if (rest := self.rest()) else ""
        clauses = (claim.clause("" if place else who) for place, (_, claim) in enumerate(lead))
        return f"{capital('; '.join(clauses))}."

    @property
    def headline(self) -> str:
        """Return the predicate of the verdict's first clause; empty without one."""
        return next((claim.predicate for _, claim in self._lead()), "")

    def rest(self) -> list[tuple[str, str]]:
        """Return what the verdict leaves out: questions, and the claims that answer them."""
        lead = self._lead()
        entries = [
            (question, capital(claim.clause()))
            for question, claim in self.claims
            if claim.passes in HOLDS and (question, claim) not in lead
        ]
        others = [pair for pair in self.claims if pair[1].passes not in HOLDS and pair[1].word]
        if others:
            text = listed([f"{claim.word} ({claim.number.trace})" for _, claim in others])
            entries.append((others[0][0], capital(text)))
        return entries

    def _lead(self) -> list[tuple[str, Claim]]:
        """Return the first claim of each part, and others in their order if some have none."""
        holds = [pair for pair in self.claims if pair[1].passes in HOLDS]
        sure = [pair for pair in holds if pair[1].passes == "yes"]
        firsts = (
            [pair for pair in (sure if part is DOES else holds) if pair[1].predicate in part][:1]
            for part in PARTS
        )
        chosen = [pair for first in firsts for pair in first]
        for rest in (sure, holds):
            chosen += [pair for pair in rest if pair not in chosen][: CLAUSES - len(chosen)]
        return [pair for pair in holds if pair in chosen]


def read(results: Mapping[str, Result], *place: int) -> Reading:
    """Return what all answers of a run say of one head; ``results`` is by question."""
    every = [
        (question, claim)
        for question, result in results.items()
        for claim in claims_of(result, *place)
    ]
    failed = {claim.predicate for _, claim in every if claim.passes == "no"}
    every = [pair for pair in every if NEEDS.get(pair[1].predicate) not in failed]
    strongest: dict[str, str] = {}
    for question, claim in sorted(every, key=lambda pair: _strength(pair[1])):
        strongest.setdefault(claim.predicate, question)
    every = [pair for pair in every if strongest[pair[1].predicate] == pair[0]]
    return Reading(tuple(sorted(every, key=lambda pair: _order(pair[1]))))


def _strength(claim: Claim) -> tuple[int, float]:
    return STRENGTH.index(claim.passes), -claim.number.value


def _order(claim: Claim) -> tuple[int, float, int]:
    names = [name for part in PARTS for name in part]
    at = names.index(claim.predicate) if claim.predicate in names else len(names)
    part = next((k for k, part in enumerate(PARTS) if claim.predicate in part), len(PARTS))
    return part, -claim.number.value if part == 0 else 0.0, at


def claims_of(result: Result, *place: int) -> Iterator[Claim]:
    """Yield what one answer says of a head: at a place in an answer about all heads."""
    for claims in getattr(topic(result.analysis), "CLAIMS", {}).get(result.analysis, ()):
        yield from claims(Head(result, place))
