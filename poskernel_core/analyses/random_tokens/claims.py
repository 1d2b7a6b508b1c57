"""What attention to random tokens shows, in a sentence."""

import numpy as np

from poskernel_core.analyses.claims import HALF, Rules, number_of, of_all, param, who
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.random_tokens.figures import explained
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

UNIFORM = -0.5
"""The exponent of the norm under uniform attention to independent values."""


def _slope(result: Result, query: int | None = None) -> str:
    at = () if query is None else (query,)
    slope = number_of(result, "slope", *at)
    if (gives := {1: "more", -1: "less"}.get(slope.sign())) is None:
        return ""
    query = int(result.chosen["query"] if query is None else query)
    if "pattern" in result.values:
        keys = np.arange(param(result, "trend_from"), query)
        row = result.values["pattern"][*at, keys].astype(float)
        if not explained(keys, row, slope.value) >= HALF:  # one spike tilts a line, too
            return ""
    return (
        f"On random tokens, {who(result)} gives {gives} to recent keys: from position {query} its "
        f"attention changes by {slope} per key, where a uniform row has "
        f"{brief(1 / (query + 1))} everywhere."
    )


def _last_slope(result: Result) -> str:
    return _slope(result, len(result.values["slope"]) - 1)


def _slopes(result: Result) -> str:
    last = result.values["slope"].shape[-1] - 1
    at_last = result.select(query=last)
    sure, slope = discovered(at_last, Condition("slope", 0, "apart")).sure, at_last.values["slope"]
    more, less = (int((sure & side).sum()) for side in (slope > 0, slope < 0))
    if not more + less:
        return ""
    return (
        f"On random tokens, {of_all(more, int(np.isfinite(slope).sum())).lower()} give"
        f"{'' if more > 1 else 's'} more to recent keys from position {last}, and {less} less."
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


RULES: Rules = {
    "random-attention: slope []": _slope,
    "random-attention: slope [query]": _last_slope,
    "random-attention: slope [layer head query]": _slopes,
    "random-attention: norm_exponent [head_of_layer_0]": _exponents,
    "random-attention: norm_exponent []": _exponent,
}
