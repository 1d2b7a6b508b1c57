"""What the metrics of HeadVis, and the example texts of heads, show."""

from poskernel_core.analyses.claims import ATTENTION, has, heads_at, heads_range, number_of, who
from poskernel_core.common.result import Result

SHARES = {
    "prev_token_score": "attention to the previous token",
    "self_attention_score": "attention to the token itself",
    "induction_score": "attention to what followed earlier occurrences of the token",
    "mean_max_activation": "largest attention in a text, on average",
}
"""Shares of attention; the metrics below have no limit."""

OTHERS = {
    "pattern_entropy": "mean entropy of an attention row",
    "qk_distance": "mean distance of the attended key",
    "qk_distance_variance": "variance of the distance of the attended key",
}


def finding(result: Result) -> str:
    """Say where a head looks, or how many heads look there."""
    shares = [name for name in SHARES if name in result.values]
    if shares and has(result, (), *shares):
        return _head(result, shares)
    for name in shares:
        if said := heads_at(result, name, SHARES[name], ATTENTION):
            return said
    others = (name for name in OTHERS if name in result.values)
    return next(filter(None, (heads_range(result, name, OTHERS[name]) for name in others)), "")


def _head(result: Result, shares: list[str]) -> str:
    numbers = {name: number_of(result, name) for name in shares}
    largest = max(numbers, key=lambda name: numbers[name].value)
    number = numbers[largest]
    text = f"The {SHARES[largest]}, is" if "," in SHARES[largest] else f"The {SHARES[largest]} is"
    place = {"yes": "above", "no": "below"}.get(number.passes(ATTENTION) or "")
    most = " (the most of three kinds)" if place == "below" and len(shares) == 3 else ""
    limit = f"{place} the limit of {ATTENTION:g}"
    return f"{text} {number} in {who(result)}{most}, {limit}." if place else ""
