"""What is drawn, read and said of induction, and of which candidates it prefers."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    ATTENTION,
    EFFECT,
    Claim,
    Head,
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
from poskernel_core.analyses.induction.figures import (
    CHANGES,
    TOKENS,
    induction_map,
    last_rows,
    named_bars,
    over_candidates,
)
from poskernel_core.analyses.induction.role_maps import CANDIDATES, head_pattern, layer_patterns
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.jackknife import Estimate, difference
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief
from poskernel_core.plotting.by_axes import by_axes


def induction(head: Head) -> Iterator[Claim]:
    """Yield whether a head is an induction head."""
    score = head.number("induction")
    text = f"{{it}} gives the token after the earlier duplicate {score} of its attention"
    labels = "an induction head", "no induction"
    yield from at_limit("induction", score, ATTENTION, text, *labels, weak=0.05)


def duplicates(head: Head) -> Iterator[Claim]:
    """Yield whether a head attends to the earlier duplicate itself."""
    if head.has("duplicate"):
        share = head.number("duplicate")
        text = f"in repeated random tokens {{it}} gives the earlier duplicate {share} of its "
        text += "attention"
        yield from at_limit("duplicates", share, ATTENTION, text, "a duplicate-token head")


def _attention(result: Result) -> str:
    """A head that looks one token back reaches a candidate that stands there: no induction."""
    far = [number_of(result, "candidate_attention", 0, pair) for pair in range(2)]
    if not any(number.passes(EFFECT) == "yes" for number in far):
        return ""
    said_of = f"{who(result)}'s attention to its candidate", "the head"
    return _recency(result, "candidate_attention", *said_of)


def _probability(result: Result) -> str:
    return _recency(result, "probability", "the probability of its candidate", "the model")


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


def _pattern(result: Result) -> str:
    keys = param(result, "first") + 1, param(result, "second") + 1
    first, last = (number_of(result, "pattern", -1, key) for key in keys)
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


def _attention_cause(result: Result) -> str:
    before, after = (brief(number) for number in result.values["attention"])
    return _cause(
        result,
        "attention_rise",
        f"{who(result)}'s attention to the last candidate",
        f" (its attention to all candidates: {before}, then {after})",
    )


def _probability_cause(result: Result) -> str:
    return _cause(result, "probability_rise", "the last candidate's probability", "")


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


def _strongest_layer(result: Result) -> go.Figure:
    """Draw the layer of the head whose least attention to a candidate is largest."""
    at = [role in CANDIDATES for role in result.text_of("role")]
    least = result.values["pattern"][:, :, -1, at].min(axis=-1).max(axis=1)
    return layer_patterns(result.select(layer=int(np.nanargmax(least))))


ADVANTAGE = "attention_advantage_change"
PATTERNS = (
    "The mean attention of every head of a layer on one row of the table of sequences: queries "
    "downwards, keys to the right. An induction head's last row is bright at the candidates; a "
    "previous-token head is bright along the first diagonal."
)
_scores = partial(heads_at, name="induction", noun="induction score", limit=ATTENTION)

VIEWS: Views = {
    "induction-scores": (
        View("induction []", says=spoken(induction)),
        View(
            "induction previous_mass duplicate []",
            partial(named_bars, names=TOKENS, x_title="share of attention ± 1 s.e."),
            "attention in a sequence repeated",
            reading="Random tokens, repeated once: the attention from the second half to the token "
            "after the earlier duplicate (induction), to the previous token, and to the duplicate "
            "itself.",
        ),
        View("induction [head]", says=_scores),
        View(
            "induction [layer head]",
            induction_map,
            "Induction score of every head",
            says=_scores,
            reading="One cell per head: its mean attention, in a random sequence repeated once, "
            "from each token to the token after its earlier duplicate. Bright heads do induction; "
            "a lower loss in the second half shows that the whole circuit works. Click a cell, or "
            "move with the arrow keys, to select that head on all pages.",
            explains="loss",
        ),
    ),
    "induction-recency": (
        View(
            "candidate_attention [second pair]",
            partial(over_candidates, name="candidate_attention"),
            "attention to candidates",
            says=_attention,
            reading="The head's attention from the last [A] to each candidate. If attention to the "
            "moving candidate rises with its position, the head itself prefers recent tokens.",
        ),
        View(
            "probability [second pair], probability_other [second]",
            reading="The probability of each candidate after the last [A], against the position of "
            "the last pair; bars are one standard error. Dotted: the mean of the random tokens. "
            "Candidates that rise to the right are preferred because they are recent.",
        ),
        View(
            "probability [second pair], role [second pos]",
            reading="One line for each row of the experiment: the last pair moves from left to "
            "right, the rest stays. The model predicts the token after the last [A].",
        ),
        View(
            "probability [second pair]",
            partial(over_candidates, name="probability"),
            "What follows the last [A]",
            says=_probability,
        ),
        View(
            "last_row [second key], role [second pos]",
            last_rows,
            "attention of the last [A]",
            reading="Each line is the last row of the head's attention pattern, for one position "
            "of the last pair. Letters mark the candidates; a bright cell under each letter is "
            "induction.",
        ),
        View("last_row [second key]", says=_rows),
    ),
    "recency-patterns": (
        View("pattern [query key], role [pos]", head_pattern, "mean attention", reading=PATTERNS),
        View("pattern [query key]", says=_pattern),
        View("pattern [head query key], role [pos]", layer_patterns, reading=PATTERNS),
        View("pattern [head query key]", says=_patterns),
        View("pattern [layer head query key], role [pos]", _strongest_layer),
        View("pattern [layer head query key]", says=_patterns),
    ),
    "equalised-norms": (
        View("attention attention_rise [norms], attention_rise_change []", says=_attention_cause),
        View("probability_rise [norms], probability_rise_change []", says=_probability_cause),
        View(
            "attention_change attention_advantage_change attention_rise_change []",
            partial(named_bars, names=CHANGES, x_title="change of the share of attention ± 1 s.e."),
            "attention, norms equalised minus as they are",
            reading="The post names the falling norms as the cause of recency. Here layer 0's "
            "norms are equalised and everything is measured again. If the norms cause the "
            "preference for the last candidate, this preference falls. If it grows, it has another "
            "cause, and the norms worked against it. Attention to all candidates shows whether the "
            "head still does induction; if it does not, the other numbers say nothing.",
            explains="probability_advantage probability_rise attention attention_advantage "
            "attention_rise slope",
        ),
        View("attention_advantage_change [...]", partial(by_axes, name=ADVANTAGE)),
    ),
}

CLAIMS = {"induction-scores": (induction, duplicates)}
