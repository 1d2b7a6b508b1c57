"""What results on induction show, in a sentence."""

from functools import partial

import numpy as np

from poskernel_core.analyses.head_measures.claims import ATTENTION
from poskernel_core.analyses.number import Number, number_of
from poskernel_core.analyses.rules import (
    Rules,
    most,
    of_all,
    param,
    reach,
    said,
    sign,
    who,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief


def finding(result: Result) -> str:
    """Return what a result on induction shows; empty if it supports no claim."""
    return said(result, RULES)


def _scores(result: Result) -> str:
    return reach(result, "induction", ATTENTION, "an induction score")


def _score(result: Result) -> str:
    """Whether a head is an induction head."""
    score = number_of(result, "induction")
    says = {
        1: f"gives {score} of its attention to the token after the earlier duplicate: an "
        "induction head",
        -1: f"gives only {score} of its attention to the token after the earlier duplicate: "
        "not an induction head",
    }.get(sign(score, ATTENTION))
    return f"{who(result)} {says} (limit {ATTENTION:g})." if says else ""


def _probability(result: Result) -> str:
    said_of = "the probability of its candidate", "the model"
    return _recency(result, "probability", *said_of)


def _attention(result: Result) -> str:
    said_of = f"{who(result)}'s attention to its candidate", "the head"
    return _recency(result, "candidate_attention", *said_of)


def _recency(result: Result, name: str, what: str, whose: str) -> str:
    """Whether the last candidate gets more as it comes closer."""
    first, last = (number_of(result, name, row, -1) for row in (0, -1))
    rises = sign(last - first)
    if not rises:
        return ""
    recent = f": {whose} prefers recent tokens" if rises > 0 else ""
    return (
        f"As the last pair moves towards the end, {what} {_turns(rises)} from {first} to "
        f"{last}{recent}."
    )


def _rows(result: Result) -> str:
    """In how many rows a head attends most to the last candidate."""
    seconds = result.coordinates["second"].tolist()
    right = sum(most(result.select(second=second), "last_row") == (second + 1,)
                for second in seconds)  # fmt: skip
    if not right:
        return ""
    return (
        f"In {of_all(right, len(seconds), 'row')} {who(result)} attends more to the last "
        "candidate than to any other key."
    )


def _preference(result: Result, *head: int) -> tuple[Number, Number]:
    """Return a head's attention from the last [A] to the first and to the last candidate."""
    first, last = param(result, "first") + 1, param(result, "second") + 1
    return (
        number_of(result, "pattern", *head, -1, first),
        number_of(result, "pattern", *head, -1, last),
    )


def _pattern(result: Result) -> str:
    """Which candidate one head prefers, if there are several."""
    first, last = _preference(result)
    prefers = sign(last - first)
    if not prefers:
        return ""
    return (
        f"From the last [A], {who(result)} attends {'more' if prefers > 0 else 'less'} to the last "
        f"candidate ({last}) than to the first ({first})."
    )


def _patterns(result: Result) -> str:
    """How many heads prefer the last candidate."""
    heads = list(np.ndindex(result.values["pattern"].shape[:-2]))
    signs = [sign(last - first) for first, last in (_preference(result, *head) for head in heads)]
    more, less = signs.count(1), signs.count(-1)
    if not more + less:
        return ""
    layer = f" of layer {result.chosen['layer']}" if "layer" in result.chosen else ""
    return (
        f"From the last [A], {of_all(more, len(heads)).lower()}{layer} attend"
        f"{'' if more > 1 else 's'} more to the last candidate than to the first, and {less} less."
    )


def _cause_attention(result: Result) -> str:
    before, after = (brief(number) for number in result.values["attention"])
    return _cause(
        result,
        "attention_rise",
        f"{who(result)}'s attention to the last candidate",
        f" (its attention to all candidates: {before}, then {after})",
    )


def _cause(result: Result, name: str, what: str, beside: str) -> str:
    """What equalised norms change of a rise from the first row to the last."""
    turns = sign(number_of(result, f"{name}_change"))
    if not turns:
        return ""
    true, equal = (brief(number) for number in result.values[name])
    return (
        f"With layer 0's norms equalised, the rise of {what} {_turns(turns)} from {true} to "
        f"{equal}{beside}."
    )


def _turns(sign: int) -> str:
    return "rises" if sign > 0 else "falls"


RULES: Rules = {
    "induction-scores: induction [layer head]": _scores,
    "induction-scores: induction [head]": _scores,
    "induction-scores: induction []": _score,
    "induction-recency: candidate_attention [second pair]": _attention,
    "induction-recency: probability [second pair]": _probability,
    "induction-recency: last_row [second key]": _rows,
    "recency-patterns: pattern [query key]": _pattern,
    "recency-patterns: pattern [head query key]": _patterns,
    "recency-patterns: pattern [layer head query key]": _patterns,
    "equalised-norms: attention attention_rise [norms], attention_rise_change []": _cause_attention,
    "equalised-norms: probability_rise [norms], probability_rise_change []": partial(
        _cause, name="probability_rise", what="the last candidate's probability", beside=""
    ),
}
