"""What is said of attention entropy."""

import math

from poskernel_core.analyses.claims import at_last, at_query, heads_range, number_of, param, who
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted


def _said(result: Result) -> str:
    """Hold one head's entropy against that of even attention, and all heads against each other."""
    here = at_query(result := at_last(result))
    if result.axes["entropy"] != ():
        return heads_range(result, "entropy", "attention entropy")
    if "query" not in result.chosen:
        return ""
    keys = int(result.chosen["query"]) + 1 - param(result, "skip")
    entropy = number_of(result, "entropy")
    even = math.log(keys) if keys > 1 else -math.inf
    if entropy.passes(even) != "no":
        return ""
    return (
        f"The attention of {who(result)}{here} has an entropy of {entropy} nats, as if "
        f"spread evenly over {brief(math.exp(entropy.value))} of {counted(keys, 'token')}."
    )


VIEWS: Views = {"entropy": (View("entropy [...]", says=_said),)}
