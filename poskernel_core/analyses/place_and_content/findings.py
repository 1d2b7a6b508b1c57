"""What results about place and content show."""

from poskernel_core.analyses.head_measures.claims import HALF
from poskernel_core.analyses.number import number_of, passing
from poskernel_core.analyses.place_and_content.formulas import SHARES
from poskernel_core.analyses.rules import who
from poskernel_core.analyses.sentences import at_last, at_query, has, heads_at
from poskernel_core.common.result import Result

PARTS = dict(zip(SHARES, ("place", "content", "only place and content together"), strict=False))


def finding(result: Result) -> str:
    """Say which part explains more than half of the score variance, if one does."""
    result = at_last(result)
    parts = [name for name in PARTS if name in result.values]
    if not parts:
        return ""
    if has(result, (), *parts):
        for name in parts:
            if (share := number_of(result, name)).surely(HALF) == "yes":
                return (
                    f"If every key stood at every place, {PARTS[name]} would explain {share} of "
                    f"the score variance of {who(result)}{at_query(result)}, more than half."
                )
        return ""
    most = max(parts, key=lambda name: int(passing(result, name, HALF)[0].sum()))
    return heads_at(result, most, f"share of score variance explained by {PARTS[most]}", HALF)
