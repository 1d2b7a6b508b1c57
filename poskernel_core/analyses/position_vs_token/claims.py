"""What results on position against token show, in a sentence."""

import numpy as np

from poskernel_core.analyses.claims import (
    ATTENTION,
    Number,
    Rules,
    most,
    name_at,
    named,
    number_of,
    of_all,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.position_vs_token.spec import CONDITIONS
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted

BOTH, POSITION, TOKEN = range(len(CONDITIONS))


def _back(offset: float) -> str:
    return f"{counted(int(offset), 'token')} back" if offset else "the token itself"


def _mass(result: Result) -> str:
    alone, both = (number_of(result, "largest_mass", run) for run in (POSITION, BOTH))
    if not (looks := alone.sign(ATTENTION)):
        return ""
    place = _back(float(result.values["largest_offset"][POSITION]))
    if looks < 0:
        return (
            f"Fed positions alone, {who(result)} gives no distance {ATTENTION:g} of its "
            f"attention: the most is {alone} ({place})."
        )
    with_tokens = f"{both} ({_back(float(result.values['largest_offset'][BOTH]))})"
    return (
        f"Fed positions alone, {who(result)} gives {alone} of its attention to one distance, "
        f"{place} (limit {ATTENTION:g}); fed tokens as well the most is {with_tokens}."
    )


def _masses(result: Result) -> str:
    alone = result.select(condition=POSITION)
    masses, offsets = named(alone, "largest_mass"), named(alone, "largest_offset")
    back = (alone.values["largest_offset"] > 0).astype(float)
    found = discovered(
        alone, Condition("largest_mass", ATTENTION), Condition(Estimate(back, back, back), 1)
    )
    sure = [name_at(alone, "largest_mass", tuple(at)) for at in np.argwhere(found.sure).tolist()]
    if not sure:
        none = masses and all(
            mass.sign(ATTENTION) < 0 or not offsets[head].value for head, mass in masses.items()
        )
        said_of_none = (
            f"Fed positions alone, none of {len(masses)} heads looks back: no largest diagonal "
            f"with {ATTENTION:g} or more of the attention is at an earlier token."
        )
        return said_of_none if none else ""
    first = max(sure, key=lambda head: masses[head].value)
    return (
        f"Fed positions alone, {of_all(len(sure), len(masses), beside=found.beside).lower()} give"
        f"{'' if len(sure) > 1 else 's'} {ATTENTION:g} or more of the attention to one "
        f"distance back, such as {first} ({masses[first]}, {_back(offsets[first].value)})."
    )


def _score(result: Result) -> str:
    alone, query = result.select(condition=POSITION), result.chosen["query"]
    top = most(alone, "score")
    if top is None or np.isfinite(alone.values["score"]).sum() < 2:
        return ""
    first, second = np.sort(alone.values["score"][np.isfinite(alone.values["score"])])[:-3:-1]
    return (
        f"Fed positions alone, {who(result)}'s score from position {query} is highest at key "
        f"{top[0]} ({_back(query - top[0])}), {brief(first - second)} nats above the next."
    )


def _attention(result: Result) -> str:
    """Whether position or token draws a head to the key that it attends to most."""
    if (top := most(result.select(condition=BOTH), "pattern")) is None:
        return ""
    both, position, token = (number_of(result, "pattern", run, *top) for run in range(3))
    if not (more := (position - token).sign()):
        return ""
    return (
        f"From position {result.chosen['query']}, {who(result)} attends most to key {top[0]} "
        f"({both}), {'more' if more > 0 else 'less'} fed positions alone ({position}) "
        f"than fed tokens alone ({token})."
    )


def _diagonal(result: Result) -> str:
    half = result.values["pattern"].shape[-1] // 2
    means = [_mean_along(result, BOTH, back).value for back in range(half)]
    back = int(np.argmax(means))
    both, position, token = (_mean_along(result, run, back) for run in range(len(CONDITIONS)))
    if not (more := (position - token).sign()):
        return ""
    return (
        f"{who(result)}'s largest diagonal ({_back(back)}) gets {both} of the attention, "
        f"{'more' if more > 0 else 'less'} fed positions alone ({position}) than fed tokens "
        f"alone ({token})."
    )


def _mean_along(result: Result, run: int, back: int) -> Number:
    """Return the mean of a pattern along a diagonal, position 0 left out.

    The errors along it need not be independent, so that of the mean is at most their mean.
    """
    value, error = (
        float(part["pattern"][run, 1:, 1:].diagonal(-back).mean()) if "pattern" in part else 0.0
        for part in (result.values, result.errors)
    )
    return Number.within(value, result.interval * error)


def _zero(result: Result) -> str:
    zero, one = (number_of(result, "probability", case) for case in (1, 2))
    if not (more := (zero - one).sign()):
        return ""
    return (
        f"Without a start token, [B] is {'more' if more > 0 else 'less'} likely after the last [A] "
        f"if the first [A] is at position 0 ({zero}) than if it is at position 1 "
        f"({one})."
    )


RULES: Rules = {
    "position-vs-token: largest_mass largest_offset [condition]": _mass,
    "position-vs-token: largest_mass largest_offset [condition layer head]": _masses,
    "position-vs-token: score [condition key]": _score,
    "position-vs-token: pattern [condition key]": _attention,
    "position-vs-token: pattern [condition query key]": _diagonal,
    "position-zero: probability [case]": _zero,
}
