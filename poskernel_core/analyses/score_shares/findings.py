"""What results about score variance show."""

import numpy as np

from poskernel_core.analyses.head_measures.claims import HALF
from poskernel_core.analyses.number import number_of, passing
from poskernel_core.analyses.rules import who
from poskernel_core.analyses.sentences import at_last, at_query, heads_at
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

PARTS = ("position", "content")


def finding(result: Result) -> str:
    """Say whether position or content explains most of the score variance."""
    parts = [part for part in PARTS if f"{part}_share" in result.values]
    if not parts:
        return ""
    match result.axes[f"{parts[0]}_share"]:
        case ():
            return next(filter(None, (_here(result, part) for part in parts)), "")
        case ("query",):
            return next(filter(None, (_along(result, part) for part in parts)), "")
    last = at_last(result)
    every = (
        heads_at(last, f"{part}_share", f"share of score variance explained by {part}", HALF)
        for part in parts
    )
    return next(filter(None, every), "")


def _here(result: Result, part: str) -> str:
    share = number_of(result, f"{part}_share")
    if share.surely(HALF) != "yes":
        return ""
    return (
        f"{part.capitalize()} explains {share} of the score variance of "
        f"{who(result)}{at_query(result)}, more than half."
    )


def _along(result: Result, part: str) -> str:
    """Say at how many query positions a part explains more than half."""
    name = f"{part}_share"
    sure, known = passing(result, name, HALF)[0], np.isfinite(result.values[name])
    if 2 * sure.sum() <= known.sum():
        return ""
    best = int(np.nanargmax(np.where(sure, result.values[name], np.nan)))
    number, query = number_of(result, name, best), result.coordinates["query"][best]
    return (
        f"{part.capitalize()} explains more than half of the score variance of "
        f"{who(result)} at {sure.sum()} of {counted(int(known.sum()), 'query position')}, "
        f"most at n = {query} ({number})."
    )
