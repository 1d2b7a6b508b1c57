"""The numbers of heads with their standard errors: one head's, and the table of all."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import streamlit as st

from pages.parts.figures.palette import KINDS
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name

__all__ = ["heads_table", "summary", "value_text"]

ROWS = {
    "etc": ("Effective token count (ETC)", "tokens", "over how many the kernel spreads"),
    "half_mass_distance": ("Half of the mass within offset", "", "in tokens; the smallest such"),
    "local_mass": ("Mass in the last {last} tokens", "", "the share that decides «local»"),
    "consistency": (
        "Consistency over queries ↓",
        "",
        "mean TV distance between kernels of different queries; 0: they agree",
    ),
    "equivariance": (
        "Translation equivariance ↓",
        "",
        "mean TV distance to the kernels of other positions, aligned; 0: the same everywhere",
    ),
    "fidelity": (
        "Fidelity ↓",
        "",
        "TV distance of the kernel to the mean attention observed; 0: position explains it",
    ),
}
"""Label, unit and meaning of every number; total variation lies from 0 to 1, ↓: lower is better."""

MOST_DIGITS = 4
LAST = 10
"""Last tokens that count as local, where nobody has said otherwise."""


def summary(head: Result, *, meanings: bool) -> None:
    """Draw a head's numbers (a result selected down to one number each) as a small table."""
    kind = head.text_of("kind")
    glyph = KINDS[kind].glyph if kind in KINDS else ""
    first, rule = f"| Kind | {glyph} **{kind or 'no key is visible'}** |", "|:--|:--|"
    lines = [first + " |" * meanings, rule + ":--|" * meanings]
    for name, (label, unit, meaning) in ROWS.items():
        if name in head.values:
            last = f" :small[{meaning}] |" if meanings else ""
            lines.append(f"| {_label(label, head)} | {value_text(head, name)} {unit} |{last}")
    st.markdown("\n".join(lines))


def _label(label: str, result: Result) -> str:
    """Return a label with the number of last tokens that the result was computed with."""
    return label.format(last=result.params.get("local_tokens", LAST))


def value_text(head: Result, name: str) -> str:
    """Return a value and its standard error, such as ``93.2 ± 0.4``."""
    value = float(head.values[name])
    error = float(head.errors[name]) if name in head.errors else math.nan
    if math.isnan(value):
        return "–"
    if math.isnan(error) or error == 0:
        return f"{value:.3g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > MOST_DIGITS:
        return f"{value:.3g} ± {error:.2g}"
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def heads_table(etc: Result, shown: set[str]) -> None:
    """Draw every head of the shown kinds as a table that sorts by a click on a column."""
    kinds = np.array(etc.text_of("kind"), dtype=object)
    places = [(i, j) for i, j in np.ndindex(*kinds.shape) if kinds[i, j] in shown]
    table = pd.DataFrame({"head": [cell_name(i, j) for i, j in places]})
    table["kind"] = [kinds[place] for place in places]
    for name, (label, unit, _) in ROWS.items():
        named = _label(label, etc)
        table[f"{named} ({unit})" if unit else named] = [
            etc.values[name][place] for place in places
        ]
    numbers = {column: st.column_config.NumberColumn(format="%.3g") for column in table.columns[2:]}
    st.dataframe(table, hide_index=True, column_config=numbers, key="heads-table")
