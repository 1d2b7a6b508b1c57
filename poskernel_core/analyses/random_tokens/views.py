"""What is drawn, read and said of attention to random tokens, and of the norms of layer 0."""

import numpy as np

from poskernel_core.analyses.claims import HALF, number_of, of_all, param, who
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.random_tokens.figures import explained, norms, row_with_trend
from poskernel_core.analyses.views import View, Views, figure_of
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

UNIFORM = -0.5
"""The exponent of the norm under uniform attention to independent values."""


def _slope(result: Result) -> str:
    slope, query = number_of(result, "slope"), result.chosen["query"]
    if (gives := {1: "more", -1: "less"}.get(slope.sign())) is None:
        return ""
    if "pattern" in result.values:
        keys = np.arange(param(result, "trend_from"), query)
        row = result.values["pattern"][keys].astype(float)
        if not explained(keys, row, slope.value) >= HALF:  # one spike tilts a line, too
            return ""
    return (
        f"On random tokens, {who(result)} gives {gives} to recent keys: from position {query} its "
        f"attention changes by {slope} per key, where a uniform row has "
        f"{brief(1 / (query + 1))} everywhere."
    )


def _last(result: Result) -> Result:
    return result.select(query=result.values["slope"].shape[-1] - 1)


def _slopes(result: Result) -> str:
    row = _last(result)
    sure, slope = discovered(row, Condition("slope", 0, "apart")).sure, row.values["slope"]
    more, less = (int((sure & side).sum()) for side in (slope > 0, slope < 0))
    if not more + less:
        return ""
    return (
        f"On random tokens, {of_all(more, int(np.isfinite(slope).sum())).lower()} give"
        f"{'' if more > 1 else 's'} more to recent keys from position {row.chosen['query']}, and "
        f"{less} less."
    )


def _exponents(result: Result) -> str:
    values = result.values["norm_exponent"]
    falls = values[discovered(result, Condition("norm_exponent", 0, "below")).sure].tolist()
    if not falls:
        return ""
    return (
        f"In {of_all(len(falls), len(values))} of layer 0 the norm of the output falls "
        f"with position (exponents from {brief(min(falls))} to {brief(max(falls))}; uniform "
        f"attention: about {brief(UNIFORM)})."
    )


def _exponent(result: Result) -> str:
    exponent = number_of(result, "norm_exponent")
    if exponent.sign() >= 0:
        return ""
    return (
        f"The norm of the output of {head_name(0, result.chosen['head_of_layer_0'])} falls with "
        f"position: its exponent is {exponent} (uniform attention: about {brief(UNIFORM)})."
    )


VIEWS: Views = {
    "random-attention": (
        View(
            "pattern [key], slope rank_correlation []",
            row_with_trend,
            "attention from position {query}",
            reading="The head's mean attention on random tokens, where only position can make a "
            "difference. A slope above zero means that recent tokens get more attention. The trend "
            "leaves out the first keys and the query itself; its R² is the share of the row's "
            "variance that a straight line explains. If R² is small, read the curve rather than "
            "the slope.",
            explains="p_value",
        ),
        View(
            "pattern [query key], slope rank_correlation [query]",
            lambda result: figure_of(_last(result)),
        ),
        View("slope []", says=_slope),
        View("slope [query]", says=lambda result: _slope(_last(result))),
        View("slope [layer head query]", says=_slopes),
        View(
            "norm [head_of_layer_0 pos], norm_exponent [head_of_layer_0], visible_keys [pos]",
            norms,
            "Norm of layer 0's outputs",
            reading="The norm of the output of each head of layer 0, against the number of visible "
            "tokens. The average of many different value vectors gets shorter; the dotted line "
            "falls as one over the square root of their number. The curve of a head that attends "
            "to few tokens stays flat. After each exponent, the legend shows how far the curve "
            "deviates from that power law at most. An exponent is meaningful only if the curve "
            "stays close to it. A click on a name in the legend shows or hides its head.",
        ),
        View("norm_exponent [head_of_layer_0]", says=_exponents),
        View("norm_exponent []", says=_exponent),
    ),
}
