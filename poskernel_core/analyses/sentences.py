"""What the findings of several topics share: how they name heads, and what they say of many."""

import numpy as np

from poskernel_core.analyses.head_measures.claims import ATTENTION, HALF
from poskernel_core.analyses.number import Number, number_of, passing
from poskernel_core.analyses.rules import by_chance
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted

ALL_HEADS = ("layer", "head")
SCALE = "total variation: 0 equal, 1 disjoint"
_NOUNS = {"tokens": "token", "nats": "nat", "ln tokens": "nat", "score (nats)": "nat"}


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


def heads_at(result: Result, name: str, noun: str, limit: float, *, below: bool = False) -> str:
    """Say in how many heads of a model, or layer, a value reaches a limit.

    With ``below``, in how many it is smaller. Empty if that is open for every head, and
    if there is no such value of all heads.
    """
    if not _of_heads(result, name):
        return ""
    value = result.values[name].astype(float)
    reached, missed = passing(result, name, limit)
    sure, against = (missed, reached) if below else (reached, missed)
    known, certain = int(np.isfinite(value).sum()), int(sure.sum())
    if not known or not (certain or against.sum() == known):
        return ""
    text = f"below {limit:g}" if below else f"{limit:g} or more"
    extreme = np.nanargmin(value) if below else np.nanargmax(value)
    place = np.unravel_index(extreme, value.shape)
    best = f"{_name(result, place)} ({amount(value[place], result.units[name])})"
    of = f"of {counted(known, 'head')}{_of_layer(result)}"
    end = f"it is {'smallest' if below else 'largest'} in {best}"
    if certain:
        return f"{_in(result)} {certain} {of}{by_chance(known)} the {noun} is {text}; {end}."
    return f"{_in(result)} none {of} is the {noun} {text}; {end}."


def heads_range(result: Result, name: str, noun: str) -> str:
    """Say which heads have the largest and the smallest value, if these differ."""
    if not _of_heads(result, name) or not np.isfinite(result.values[name]).any():
        return ""
    value = result.values[name].astype(float)
    most, least = (
        tuple(int(each) for each in np.unravel_index(find(value), value.shape))
        for find in (np.nanargmax, np.nanargmin)
    )
    gap = number_of(result, name, *most) - number_of(result, name, *least)
    if value[most] == value[least] or gap.surely(0) != "yes":
        return ""
    large, small = (
        f"{_name(result, place)} ({amount(value[place], result.units[name])})"
        for place in (most, least)
    )
    start = f"In layer {result.chosen['layer']} the" if "layer" in result.chosen else "The"
    return f"{start} {noun} is largest in {large} and smallest in {small}."


def pairs_apart(result: Result, alike: float, apart: float, pairs: str) -> str:
    """Say how many pairs of kernels are far apart, and how many nearly equal."""
    upper = np.triu_indices(result.values["distance"].shape[-1], 1)
    known = np.isfinite(result.values["distance"][..., *upper])
    far = int(passing(result, "distance", apart)[0][..., *upper].sum())
    near = int(passing(result, "distance", alike)[1][..., *upper].sum())
    if not far and not near:
        return ""
    return (
        f"The kernels of {far} of {counted(int(known.sum()), 'pair')} of {pairs} are {apart:g} or "
        f"more apart ({SCALE}), those of {near} less than {alike:g}."
    )


def look_back(head: str, back: int, mass: Number, where: str = "on average") -> str:
    """Say how much attention the largest diagonal of a head takes."""
    place = {0: "the current token", 1: "the previous token"}.get(back, f"the token {back} back")
    match mass.surely(ATTENTION):
        case "yes":
            return (
                f"{head} gives {place} {mass} of its attention {where}; a head looks "
                f"somewhere from {ATTENTION:g} on."
            )
        case "no":
            return (
                f"No diagonal of {head} gets {ATTENTION:g} of its attention {where}; {place} "
                f"gets most, {mass}."
            )
    return ""


def predicted(head: str, distance: Number, at: str = "") -> str:
    """Say how far a head's kernel and its observed attention are apart."""
    passes = distance.surely(HALF)
    if passes not in ("yes", "no"):
        return ""
    how = "too far for a kernel that predicts" if passes == "yes" else "the kernel predicts"
    return (
        f"The kernel and the observed attention of {head}{at} are {distance} apart ({SCALE})"
        f": {how} the attention (limit {HALF:g})."
    )


def curves_apart(result: Result, *names: str) -> Number:
    """Return the total variation of two distributions of a result, with the largest error.

    Errors of the entries need not be independent, so they are added up.
    """
    left, right = (result.values[name].astype(float) for name in names)
    wrong = [result.errors[name] for name in names if name in result.errors]
    error = np.sqrt(sum((np.square(each, dtype=float) for each in wrong), np.zeros_like(left)))
    seen = np.isfinite(left) & np.isfinite(right)
    distance = 0.5 * np.abs(left - right)[seen].sum() if seen.any() else np.nan
    return Number.within(float(distance), result.interval * float(0.5 * error[seen].sum()))


def _of_heads(result: Result, name: str) -> bool:
    axes = result.axes[name] if name in result.values else ()
    return axes == ALL_HEADS or (axes == ("head",) and "layer" in result.chosen)


def _in(result: Result) -> str:
    """Begin a sentence about the heads, at the result's query position if it has one."""
    return f"A{here[2:]}, in" if (here := at_query(result)) else "In"


def _of_layer(result: Result) -> str:
    return f" of layer {result.chosen['layer']}" if "layer" in result.chosen else ""


def _name(result: Result, place: tuple[int, ...] | tuple[np.intp, ...]) -> str:
    layer = place[0] if len(place) > 1 else result.chosen["layer"]
    return head_name(int(layer), int(place[-1]))
