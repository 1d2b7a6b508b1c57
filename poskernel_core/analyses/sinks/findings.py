"""What results about attention sinks show."""

from poskernel_core.analyses.number import number_of
from poskernel_core.analyses.rules import param, who
from poskernel_core.analyses.sentences import heads_at
from poskernel_core.common.result import Result

NOUNS = {"sink": "attention to the first key", "learned_sink": "mass on the learned sink"}


def finding(result: Result) -> str:
    """Say whether a head has a sink, or how many heads have one."""
    limit = param(result, "threshold")
    if result.axes.get("alpha", result.axes.get("sink")) in (("key",), ()):
        head = who(result)
        first = number_of(result, "alpha", 0) if "alpha" in result.values else None
        first = first or number_of(result, "sink")
        text = f"The key at position 0 gets {first} of the attention of {head} on average"
        if first.surely(limit) == "yes":
            return f"{text}: an attention sink (limit {limit:g})."
        if "learned_sink" in result.values:
            learned = number_of(result, "learned_sink")
            if learned.surely(limit) == "yes":
                return (
                    f"A learned sink takes {learned} of the attention of {head} on average "
                    f"(limit {limit:g})."
                )
        return (
            f"{text}: no attention sink (limit {limit:g})." if first.surely(limit) == "no" else ""
        )
    name = next(name for name in (*NOUNS, *result.values) if name in result.values)
    return heads_at(result, name, NOUNS.get(name, name), limit) if name in NOUNS else ""
