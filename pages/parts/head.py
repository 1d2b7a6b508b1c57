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
    "etc": ("ETC", "tokens", "effective token count of the kernel"),
    "half_mass_distance": ("Half of the mass within offset", "", "in tokens; the smallest such"),
    "local_mass": ("Mass in the last tokens", "", "the share that decides «local»"),
    "consistency": ("Consistency", "", "mean TV between kernels of different queries"),
    "equivariance": ("Equivariance", "", "mean TV to the kernels of other positions, aligned"),
    "fidelity": ("Fidelity", "", "TV between the kernel and the observed mean attention"),
}
"""Label, unit and meaning of every number; distances are total variation, from 0 to 1."""

MOST_DIGITS = 4


def summary(head: Result, *, meanings: bool) -> None:
    """Draw a head's numbers (a result selected down to one number each) as a small table."""
    lines = []
    if "kind" in head.values:
        lines.append(f"| Kind | {_kind_text(head.text_of('kind'))} |" + " |" * meanings)
    for name, (label, unit, meaning) in ROWS.items():
        if name in head.values:
            last = f" :small[{meaning}] |" if meanings else ""
            lines.append(f"| {label} | {value_text(head, name)} {unit} |{last}")
    lines.insert(1, "|:--|:--|" + ":--|" * meanings)
    st.markdown("\n".join(lines))


def _kind_text(kind: str | None) -> str:
    return f"{KINDS[kind].glyph} **{kind}**" if kind else "no key is visible"


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
        table[f"{label} ({unit})" if unit else label] = [
            etc.values[name][place] for place in places
        ]
    numbers = {column: st.column_config.NumberColumn(format="%.3g") for column in table.columns[2:]}
    st.dataframe(table, hide_index=True, column_config=numbers, key="heads-table")
