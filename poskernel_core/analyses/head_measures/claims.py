"""What the verdicts on all heads show."""

from poskernel_core.analyses.claims import listed, of_all
from poskernel_core.analyses.reading import WHERE
from poskernel_core.common.result import Result

PLACES = dict(
    zip(WHERE, ("the first key", "a learned sink", "one distance", "duplicates"), strict=True)
)


def finding(result: Result) -> str:
    """Count the heads whose verdict begins with a place; a verdict speaks for itself."""
    if "headline" not in result.texts or result.axes["headline"] != ("layer", "head"):
        return ""
    begins = [text for text in result.texts["headline"].ravel().tolist() if text]
    counts = {what: begins.count(where) for where, what in PLACES.items() if where in begins}
    if not counts:
        return ""
    parts = [f"{what} in {count}" for what, count in counts.items()]
    every = of_all(sum(counts.values()), len(begins))
    return f"{every} give a large share of their attention to one place: {listed(parts)}."
