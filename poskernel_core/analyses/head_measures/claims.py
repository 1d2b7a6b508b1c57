"""Build the verdict on one head: a sentence of claims that its measures support.

Where the interval of a number holds the limit, the sentence says *about*.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poskernel_core.analyses.number import Number, number_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted

ATTENTION = 0.3
"""Smallest share of attention for the claim that a head looks somewhere."""

HALF = 0.5
"""Smallest share with which position or content decides the scores, and smallest distance at which
a kernel does not predict a head's attention."""

EFFECT = 0.1
"""Smallest effect on a share of attention that counts."""

FOLLOWS = {
    "standing_first": "what stands first",
    "position_zero": "position 0",
    "start_token": "the start token",
}
"""What a sink may follow, by the names of the effects."""

KEEPS, SPREADS = 0.25, 0.75
"""Slopes of log ETC on log keys: below the first a head keeps its reach, from the second on it
spreads over all visible keys."""


@dataclass(frozen=True)
class Head:
    """All results about one head.

    Attributes:
        found: results by question name, at one query position.
        layer, head: its place.
    """

    found: Mapping[str, Result]
    layer: int
    head: int

    def knows(self, question: str) -> bool:
        """Return whether a question was answered."""
        return question in self.found

    def number(self, question: str, value: str, *place: int) -> Number:
        """Return a number; a value declared without an error counts as exact."""
        return number_of(self.found[question], value, self.layer, self.head, *place)

    def word(self, question: str, value: str) -> str | None:
        """Return the name of a kind; None where the head has none."""
        code = float(self.found[question].values[value][self.layer, self.head])
        words = self.found[question].labels[value]
        return None if math.isnan(code) or code < 0 else words[int(code)]

    def param(self, question: str, name: str) -> Any:
        """Return a parameter of a question."""
        return self.found[question].params[name]


@dataclass(frozen=True)
class Said:
    """A clause of the verdict; ``negative``: something that the head does not do."""

    text: str
    negative: bool = False


def verdict(head: Head) -> str:
    """Return the verdict on a head as a sentence; empty without claims."""
    kind = _kind(head)
    said = [each for question, claim in CLAIMS if head.knows(question) for each in claim(head)]
    clauses = [each.text for each in said if not each.negative]
    nots = [each.text for each in said if each.negative]
    lead, detail = kind or ("", "")
    if detail:
        clauses.insert(0, detail)
    if nots:
        clauses.append(listed(nots))
    if not clauses:
        return f"{lead}." if lead else ""
    text = "; ".join(clauses)
    text = f"{lead}: {text}" if lead else text[0].upper() + text[1:]
    return f"{text}."


def _kind(head: Head) -> tuple[str, str] | None:
    """Return the kind of the kernel, and the number that decides it."""
    if not head.knows("etc"):
        return None
    mass, spread = head.number("etc", "local_mass"), head.number("etc", "etc")
    visible = head.number("etc", "visible_keys").value
    if math.isnan(spread.value):
        return None
    last = head.param("etc", "local_tokens")
    local = mass.passes(head.param("etc", "local_share"))
    uniform = spread.passes(head.param("etc", "uniform_share") * visible)
    near = f"by position {mass} of its attention falls on the last {counted(last, 'token')}"
    wide = f"by position it spreads over {spread} of {counted(f'{visible:.0f}', 'token')}"
    if local == "yes":
        return "Local", near
    if local == "about":
        return "About local", near
    return {"yes": "Uniform", "about": "About uniform", "no": "Slow decay"}[uniform or "no"], wide


def _look_back(head: Head) -> Iterator[Said]:
    """The diagonal that takes most of the attention."""
    mass = head.number("previous-token", "largest_mass")
    passes, place = mass.passes(ATTENTION), head.number("previous-token", "largest_offset").value
    if passes in (None, "no"):
        return
    back = int(place)
    number = f"(P({back}) {mass})"
    about = "" if passes == "yes" else "about "
    if back == 0:
        yield Said(f"{about}looks at the current token {number}")
        return
    how = {
        "by position": " by position",
        "negative self-attention": " by negative self-attention",
        "aggregator": ", at what earlier heads wrote there",
    }.get(head.word("previous-token", "kind") or "", "")
    far = "one token" if back == 1 else f"{back} tokens"
    yield Said(f"{about}looks {far} back{how} {number}")


def _share(head: Head) -> Iterator[Said]:
    """Score variance explained by position and by content."""
    position, content = (
        head.number("score-variance", f"{name}_share") for name in ("position", "content")
    )
    decides = [
        f"{what} decides its scores (share {number})"
        for what, number in (("position", position), ("content", content))
        if number.passes(HALF) == "yes"
    ]
    if decides:
        yield Said(" and ".join(decides))
    elif position.passes(HALF) is not None:
        yield Said(f"position ({position}) and content ({content}) share its scores")


def _both(head: Head) -> Iterator[Said]:
    """Whether the scores of a rotary head depend most on place and content together."""
    both = head.number("place-and-content", "both_share")
    if both.passes(HALF) == "yes":
        yield Said(f"which content scores high depends on where it stands (share {both})")


def _explained(head: Head) -> Iterator[Said]:
    """Whether the kernel fails to predict the observed attention."""
    distance = head.number("etc", "attention_distance")
    if distance.passes(HALF) == "yes":
        yield Said(f"its attention differs from its positional kernel (distance {distance})")


def _foreseen(head: Head) -> Iterator[Said]:
    """What few keys chosen by the kernel capture, and whether the first and last keys do better."""
    share, gain = (head.number("foreseen-attention", name) for name in ("share_32", "gain_32"))
    visible = head.number("foreseen-attention", "visible_keys").value
    if share.passes(HALF) != "yes" or visible < 2 * 32:
        return
    than = {"yes": "more", "no": "less"}.get(gain.passes(0.0) or "", "") if gain.value else ""
    rival = Number.within(share.value - gain.value, 0.0)
    fixed = f", {than} than the first 4 and the last 28 do ({rival})" if than else ""
    yield Said(f"its kernel foresees {share} of its attention with 32 of {visible:.0f} keys{fixed}")


def main_source(names: Sequence[str], shares: Sequence[Number]) -> tuple[str, Number] | None:
    """Return the one component whose interval is above half of a score, if no other may be."""
    passes = [share.passes(HALF) for share in shares]
    if passes.count("yes") != 1 or "about" in passes:
        return None
    place = passes.index("yes")
    return named_source(names[place]), shares[place]


def named_source(name: str) -> str:
    """Return a component's name as sentences give it: ``the positional embedding``, ``L0H3``."""
    return f"the {name}" if name.endswith(("embedding", "constant", "biases")) else name


def _sources(head: Head) -> Iterator[Said]:
    """The component that writes most of the positional score."""
    names = head.found["position-sources"].words("source")
    shares = [head.number("position-sources", "share", place) for place, _ in enumerate(names)]
    if found := main_source(names, shares):
        yield Said("most of its positional score comes from {} (share {})".format(*found))


def _induction(head: Head) -> Iterator[Said]:
    score = head.number("induction-scores", "induction")
    yield from _at_limit(score, ATTENTION, "an induction head ({})", "no induction")


def _duplicates(head: Head) -> Iterator[Said]:
    """Attention to earlier duplicates of the current token."""
    limit = head.param("contextual-heads", "duplicates")
    near, far = (
        head.number("contextual-heads", name) for name in ("near_duplicates", "far_duplicates")
    )
    known = {name: each.passes(limit) for name, each in (("near", near), ("far", far))}
    there = [
        f"{'about ' if known[name] == 'about' else ''}{name} ones {number}"
        for name, number in (("near", near), ("far", far))
        if known[name] in ("yes", "about")
    ]
    if there:
        yield Said(f"attends to earlier duplicates of the current token ({', '.join(there)})")
    elif "no" in known.values():
        yield Said("not drawn to duplicates", negative=True)


def _contextual(head: Head) -> Iterator[Said]:
    """A broad kernel whose denominator is nearly the same in all windows."""
    spread, width = (head.number("contextual-heads", name) for name in ("denominator_cv", "etc"))
    broad, steady = (head.param("contextual-heads", name) for name in ("broad", "steady"))
    varies = spread.passes(steady)
    if varies is None or math.isnan(width.value):
        return
    other = head.word("contextual-heads", "group") not in ("contextual", "other")
    if other or width.value < broad or varies == "yes":
        yield Said("not contextual", negative=True)
    else:
        about = "" if varies == "no" else "about "
        yield Said(
            f"{about}contextual (its softmax denominator varies by {spread} of its mean from "
            "window to window)"
        )


def _sink_passes(head: Head) -> str | None:
    return head.number("sinks", "sink").passes(head.param("sinks", "threshold"))


def _sink(head: Head) -> Iterator[Said]:
    limit = head.param("sinks", "threshold")
    sink = head.number("sinks", "sink")
    yield from _at_limit(sink, limit, "a sink on the first key ({})", "no sink")
    learned = head.number("sinks", "learned_sink")
    if learned.passes(limit) == "yes":
        yield Said(f"a learned sink ({learned})")


def _sink_cause(head: Head) -> Iterator[Said]:
    """What the sink follows; in its texts a head may have one that has none here."""
    if head.knows("sinks") and _sink_passes(head) == "no":
        return
    effects = {name: head.number("sink-anatomy", name) for name in FOLLOWS}
    sure = [f"{FOLLOWS[n]} ({each})" for n, each in effects.items() if each.passes(EFFECT) == "yes"]
    if sure:
        yield Said(f"its sink follows {listed(sure)}")


def reach_of(slope: Number, upper: Number) -> str:
    """Say what both slopes of a head's dilution show; empty if nothing."""
    if {slope.surely(KEEPS), upper.surely(KEEPS)} == {"no"}:
        return "keeps its reach"
    spreads = {slope.surely(SPREADS), upper.surely(SPREADS)} == {"yes"}
    return "spreads over all there is" if spreads else ""


def _reach(head: Head) -> Iterator[Said]:
    """Whether its kernel keeps its reach, or spreads over all visible keys."""
    slope, upper = (head.number("dilution", name) for name in ("alpha", "alpha_upper"))
    if said := reach_of(slope, upper):
        yield Said(f"{said} as the context grows (slope {slope})")


def _wavelength(head: Head) -> Iterator[Said]:
    """The wavelength that moves the positional logit most; "about" if the next may."""
    swings = {
        place: head.number("rotary-spectrum", "swing", place)
        for place in range(head.found["rotary-spectrum"].values["swing"].shape[-1])
    }
    order = sorted(swings, key=lambda place: -np.nan_to_num(swings[place].value, nan=-1.0))
    if math.isnan(swings[order[0]].value):
        return
    length = brief(head.number("rotary-spectrum", "dominant_wavelength").value)
    told = len(order) < 2 or (swings[order[0]] - swings[order[1]]).passes(0.0) in ("yes", None)
    about = "" if told else "about "
    yield Said(f"moved most by a wavelength of {about}{counted(length, 'token')}")


def _at_limit(number: Number, limit: float, yes: str, no: str) -> Iterator[Said]:
    match number.passes(limit):
        case "yes":
            yield Said(yes.format(number))
        case "about":
            yield Said(f"about {yes.format(number)}")
        case "no":
            yield Said(no, negative=True)


def listed(parts: list[str]) -> str:
    """Join clauses with commas and "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


CLAIMS: tuple[tuple[str, Callable[[Head], Iterator[Said]]], ...] = (
    ("previous-token", _look_back),
    ("induction-scores", _induction),
    ("contextual-heads", _duplicates),
    ("contextual-heads", _contextual),
    ("sinks", _sink),
    ("sink-anatomy", _sink_cause),
    ("score-variance", _share),
    ("place-and-content", _both),
    ("position-sources", _sources),
    ("etc", _explained),
    ("dilution", _reach),
    ("foreseen-attention", _foreseen),
    ("rotary-spectrum", _wavelength),
)
"""Questions and the claims that their answers support, in the order of the verdict's clauses."""
