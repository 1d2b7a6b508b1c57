"""Numbers of heads with their standard errors: those of one head, and a table of all heads."""

import numpy as np
import pandas as pd

from pages.shared.tables.tables import (
    HEAD,
    errors_line,
    linked_table,
    markdown_table,
    rounded_table,
)
from poskernel_core.analyses.kernels.etc import stands
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.plotting.palette import KIND_LOOKS

SUMMARY_ROWS = {
    "etc": ("Effective token count (ETC) at n = {query}", "how many tokens the kernel covers"),
    "half_mass_distance": (
        "Half-mass distance",
        "half of the mass lies nearer than this, in tokens; offset k reaches from k to k + 1",
    ),
    "local_mass": ("Mass in the last {last} tokens", "decides whether the head is «local»"),
    "query_variation": (
        "Query variation",
        "mean total variation distance between kernels of different queries; 0: they agree",
    ),
    "equivariance_error": (
        "Equivariance error",
        "mean total variation distance to kernels of other positions, aligned; 0: they agree",
    ),
    "attention_distance": (
        "Distance to observed attention",
        "total variation distance to the mean observed attention; 0: the mean is the kernel",
    ),
}
"""Label and meaning of every number; total variation lies between 0 and 1."""

OPEN = " (not resolved)"
"""What is said of a kind if the interval of a number holds the limit that decides it."""

LAST = 10
"""Default number of last tokens that count as local."""


def summary(head: Result, *, meanings: bool) -> None:
    """Draw a head's numbers (a result selected down to one number each) as a small table."""
    kind = [_kind_text(head)] if "kind" in head.values else []
    rows = [("Kind", text, "") for text in kind]
    for name, (label, meaning) in SUMMARY_ROWS.items():
        if name in head.values:
            number = value_text(head, name)
            if name == "etc":
                number = counted(number, "token")
            rows.append((_label(label, head), number, f":small[{meaning}]"))
    shown = 3 if meanings else 2
    markdown_table(rows[0][:shown], [row[:shown] for row in rows[1:]])
    errors_line(head)


def _label(label: str, result: Result) -> str:
    """Return a label with a result's number of last tokens and its query position."""
    query = result.chosen.get("query", result.params.get("query", "each"))
    return label.format(last=result.params.get("local_tokens", LAST), query=query)


def _kind_text(head: Result) -> str:
    if not (kind := head.text_of("kind")):
        return "no key is visible"
    return f"{KIND_LOOKS[kind].glyph} **{kind}**{'' if stands(head) else OPEN}"


def heads_table(etc: Result, shown: set[str]) -> None:
    """Draw a sortable table of the heads of the shown kinds."""
    kinds, resolved = np.array(etc.text_of("kind"), dtype=object), stands(etc)
    places = [(i, j) for i, j in np.ndindex(*kinds.shape) if kinds[i, j] in shown]
    heads = [i * kinds.shape[1] + j for i, j in places]
    table = pd.DataFrame({HEAD: [head_name(i, j) for i, j in places]}, index=heads)
    table["kind"] = [f"{kinds[place]}{'' if resolved[place] else OPEN}" for place in places]
    columns = {}
    for name, (label, _) in SUMMARY_ROWS.items():
        if name not in etc.values:  # it forms
            continue
        columns[_label(label, etc) + " (tokens)" * (name == "etc")] = name
    for column, name in columns.items():
        table[column] = [etc.values[name][place] for place in places]
    linked_table(rounded_table(table, etc, columns), "heads-table")
    errors_line(etc)
