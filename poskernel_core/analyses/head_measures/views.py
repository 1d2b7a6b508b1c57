"""What is drawn and said of all measures and verdicts of heads."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import listed, of_all
from poskernel_core.analyses.reading import WHERE
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import texts_of
from poskernel_core.plotting.head_map import head_map

PLACES = dict(
    zip(WHERE, ("the first key", "a learned sink", "one distance", "duplicates"), strict=True)
)


def _first_measure(result: Result) -> go.Figure:
    return head_map(
        result.values["value"][0],
        hover_text=": %{z:.4g}<br>%{text}",
        text=result.texts["verdict"],
        colorbar={"title": result.words("measure")[0]},
    )


def measure_texts(head: Result) -> list[str]:
    """Return each measure of a head as text: a number with its error, or the name of its kind."""
    kinds = head.texts["kinds"]
    return [
        _kind(kinds[place].tolist(), value) if any(kinds[place]) else text
        for place, (text, value) in enumerate(
            zip(texts_of(head, "value").tolist(), head.values["value"].tolist(), strict=True)
        )
    ]


def _kind(words: list[str], code: float) -> str:
    return "–" if np.isnan(code) or code < 0 else words[int(code)]


def rank_texts(head: Result) -> list[str]:
    """Return the rank of one head in every measure, such as "3 of 32"; empty where it has none.

    With the ranks of the heads that cannot be told from it: "3 (1–7) of 32".
    """
    names = ("rank", "first_rank", "last_rank", "ranked")
    return [
        f"{rank:.0f}{f' ({first:.0f}–{last:.0f})' if first < last else ''} of {count:.0f}"
        if np.isfinite(rank)
        else ""
        for rank, first, last, count in zip(*(head.values[name] for name in names), strict=True)
    ]


def measures_table(head: Result) -> go.Figure:
    """Draw one head's measures with their errors and ranks."""
    columns = {
        "measure": head.words("measure"),
        "value": measure_texts(head),
        "unit": head.words("unit"),
        "rank": rank_texts(head),
    }
    table = go.Table(
        columnwidth=[5, 4, 4, 2],
        header={"values": list(columns), "align": "left"},
        cells={"values": list(columns.values()), "align": "left", "height": 26},
    )
    return go.Figure(table).update_layout(height=60 + 28 * len(columns["measure"]))


def _places(result: Result) -> str:
    """Count the heads whose verdict begins with a place; a verdict speaks for itself."""
    begins = [text for text in result.texts["headline"].ravel().tolist() if text]
    counts = {what: begins.count(where) for where, what in PLACES.items() if where in begins}
    if not counts:
        return ""
    parts = [f"{what} in {count}" for what, count in counts.items()]
    every = of_all(sum(counts.values()), len(begins))
    return f"{every} give a large share of their attention to one place: {listed(parts)}."


VIEWS: Views = {
    "verdicts": (
        View(
            "value rank first_rank last_rank ranked [measure], kinds [measure label]",
            measures_table,
            reading="Every measure of the head with its standard error, and its rank among all "
            "heads of the model. Rank 1 is the largest value; ↓ marks a measure for which lower is "
            "better. Kinds have no rank. A measure's name links to the page on it.",
        ),
        View("value [measure layer head], verdict [layer head]", _first_measure),
        View("headline [layer head]", says=_places),
    ),
}
