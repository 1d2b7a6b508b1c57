"""All measures and verdicts of a head as tables and figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import texts_of
from poskernel_core.plotting.head_map import head_map


def verdicts_figure(found: Result) -> go.Figure:
    """Draw one head's measures as a table, or the first measure of all heads."""
    if found.axes["value"] == ("measure",):
        return measures_table(found)
    return head_map(
        found.values["value"][0],
        told=": %{z:.4g}<br>%{text}",
        text=found.texts["verdict"],
        colorbar={"title": found.words("measure")[0]},
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
