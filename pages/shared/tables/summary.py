"""The numbers of heads with their standard errors: one head's, and the table of all."""

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared.tables.tables import HEAD, errors_line, linked_table, rounded_table
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text, with_bias
from poskernel_core.plotting.palette import KIND_LOOKS

SUMMARY_ROWS = {
    "etc": (
        "Effective token count (ETC) at n = {query}",
        "tokens",
        "over how many the kernel spreads",
    ),
    "half_mass_distance": ("Half of the mass within offset", "", "in tokens; the smallest such"),
    "local_mass": ("Mass in the last {last} tokens", "", "the share that decides «local»"),
    "query_variation": (
        "Query variation",
        "",
        "mean total variation distance between kernels of different queries; 0: they agree",
    ),
    "equivariance_error": (
        "Equivariance error",
        "",
        "mean total variation distance to kernels of other positions, aligned; 0: all are alike",
    ),
    "attention_distance": (
        "Distance to observed attention",
        "",
        "total variation distance to the mean attention observed; 0: position explains it",
    ),
}
"""Label, unit and meaning of every number; total variation lies from 0 to 1."""

LAST = 10
"""Last tokens that count as local, where nobody has said otherwise."""


def summary(head: Result, *, meanings: bool) -> None:
    """Draw a head's numbers (a result selected down to one number each) as a small table."""
    lines = []
    if "kind" in head.values:
        lines.append(f"| Kind | {_kind_text(head.text_of('kind'))} |" + " |" * meanings)
    for name, (label, unit, meaning) in SUMMARY_ROWS.items():
        if name in head.values:
            last = f" :small[{meaning}] |" if meanings else ""
            named = _label(label, head)
            number = with_bias(
                _in(unit, value_text(head, name)), head.biases.get(name), head.errors.get(name)
            )
            lines.append(f"| {named} | {number} |{last}")
    lines.insert(1, "|:--|:--|" + ":--|" * meanings)
    st.markdown("\n".join(lines))
    errors_line(head)


def _in(unit: str, number: str) -> str:
    return counted(number, unit.removesuffix("s")) if unit else number


def _label(label: str, result: Result) -> str:
    """Return a label with the last tokens that count, and the query position, of a result."""
    query = result.chosen.get("query", result.params.get("query", "each"))
    return label.format(last=result.params.get("local_tokens", LAST), query=query)


def _kind_text(kind: str | None) -> str:
    return f"{KIND_LOOKS[kind].glyph} **{kind}**" if kind else "no key is visible"


def heads_table(etc: Result, shown: set[str]) -> None:
    """Draw every head of the shown kinds as a table that sorts by a click on a column."""
    kinds = np.array(etc.text_of("kind"), dtype=object)
    places = [(i, j) for i, j in np.ndindex(*kinds.shape) if kinds[i, j] in shown]
    heads = [i * kinds.shape[1] + j for i, j in places]
    table = pd.DataFrame({HEAD: [head_name(i, j) for i, j in places]}, index=heads)
    table["kind"] = [kinds[place] for place in places]
    columns = {}
    for name, (label, unit, _) in SUMMARY_ROWS.items():
        named = _label(label, etc)
        columns[f"{named} ({unit})" if unit else named] = name
    for column, name in columns.items():
        table[column] = [etc.values[name][place] for place in places]
    linked_table(rounded_table(table, etc, columns), "heads-table")
    errors_line(etc)
