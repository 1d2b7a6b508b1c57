"""What results on induction show, in a sentence."""

from collections.abc import Iterator
from functools import partial

from poskernel_core.analyses.claims import (
    ATTENTION,
    EFFECT,
    Claim,
    Head,
    Number,
    Rules,
    at_limit,
    heads_at,
    most,
    number_of,
    of_all,
    param,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.common.jackknife import Estimate, difference
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief


def induction(head: Head) -> Iterator[Claim]:
    """Yield whether a head is an induction head."""
    score = head.number("induction")
    text = f"{{it}} gives the token after the earlier duplicate {score} of its attention"
    labels = "an induction head", "no induction"
    yield from at_limit("induction", score, ATTENTION, text, *labels, weak=0.05)


def _attention(result: Result) -> str:
    """A head that looks one token back reaches a candidate that stands there: no induction."""
    far = [number_of(result, "candidate_attention", 0, pair) for pair in range(2)]
    if not any(number.passes(EFFECT) == "yes" for number in far):
        return ""
    said_of = f"{who(result)}'s attention to its candidate", "the head"
    return _recency(result, "candidate_attention", *said_of)


def _recency(result: Result, name: str, what: str, whose: str) -> str:
    first, last = (number_of(result, name, row, -1) for row in (0, -1))
    if not (rises := (last - first).sign()):
        return ""
    recent = f": {whose} prefers recent tokens" if rises > 0 else ""
    return (
        f"As the last pair moves towards the end, {what} {_turns(rises)} from {first} to "
        f"{last}{recent}."
    )


def _rows(result: Result) -> str:
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
    first, last = param(result, "first") + 1, param(result, "second") + 1
    return (
        number_of(result, "pattern", *head, -1, first),
        number_of(result, "pattern", *head, -1, last),
    )


def _pattern(result: Result) -> str:
    first, last = _preference(result)
    if not (prefers := (last - first).sign()):
        return ""
    return (
        f"From the last [A], {who(result)} attends {'more' if prefers > 0 else 'less'} to the last "
        f"candidate ({last}) than to the first ({first})."
    )


def _patterns(result: Result) -> str:
    every, places = result.estimate_of("pattern"), (param(result, "second"), param(result, "first"))
    last, first = (Estimate(*(part[..., -1, at + 1] for part in every)) for at in places)
    gap = difference(last, first)
    sure, heads = discovered(result, Condition(gap, 0, "apart")).sure, gap.value.size
    more, less = (int((sure & side).sum()) for side in (gap.value > 0, gap.value < 0))
    if not more + less:
        return ""
    layer = f" of layer {result.chosen['layer']}" if "layer" in result.chosen else ""
    return (
        f"From the last [A], {of_all(more, heads).lower()}{layer} attend"
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
    if not (turns := number_of(result, f"{name}_change").sign()):
        return ""
    true, equal = (brief(number) for number in result.values[name])
    return (
        f"With layer 0's norms equalised, the rise of {what} {_turns(turns)} from {true} to "
        f"{equal}{beside}."
    )


def _turns(sign: int) -> str:
    return "rises" if sign > 0 else "falls"


RULES: Rules = {
    **{
        f"induction-scores: induction [{axes}]": partial(
            heads_at, name="induction", noun="induction score", limit=ATTENTION
        )
        for axes in ("layer head", "head")
    },
    "induction-scores: induction []": spoken(induction),
    "induction-recency: candidate_attention [second pair]": _attention,
    "induction-recency: probability [second pair]": partial(
        _recency, name="probability", what="the probability of its candidate", whose="the model"
    ),
    "induction-recency: last_row [second key]": _rows,
    "recency-patterns: pattern [query key]": _pattern,
    "recency-patterns: pattern [head query key]": _patterns,
    "recency-patterns: pattern [layer head query key]": _patterns,
    "equalised-norms: attention attention_rise [norms], attention_rise_change []": _cause_attention,
    "equalised-norms: probability_rise [norms], probability_rise_change []": partial(
        _cause, name="probability_rise", what="the last candidate's probability", beside=""
    ),
}

CLAIMS = {"induction-scores": (induction,)}
