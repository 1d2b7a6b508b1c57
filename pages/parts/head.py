"""The numbers of one head, with their standard errors."""

from __future__ import annotations

import streamlit as st

from pages.parts.figures.layout import number
from pages.parts.figures.palette import KINDS
from poskernel_core.analyses.base import Result

__all__ = ["metrics", "value_text"]

TRUST = {
    "consistency": "mean TV distance between kernels of different queries; lower is better",
    "equivariance": "TV distance to the kernels of other positions, aligned by offset",
    "fidelity": "TV distance between the kernel and the observed mean attention",
}


def metrics(head: Result) -> None:
    """Draw a head's summaries (a result selected down to one number each)."""
    kind = head.text_of("kind")
    glyph = KINDS[kind].glyph if kind in KINDS else ""
    first = st.columns(3)
    first[0].metric("Kind", f"{glyph} {kind or 'no key visible'}")
    first[1].metric("ETC (tokens)", value_text(head, "etc"))
    first[2].metric("Half of the mass within", f"{value_text(head, 'half_mass_distance')} tokens")
    for column, (name, meaning) in zip(st.columns(3), TRUST.items(), strict=True):
        if name in head.values:
            column.metric(name.capitalize(), value_text(head, name), help=meaning)


def value_text(head: Result, name: str) -> str:
    """Return a value and its standard error, such as ``93.2 ± 0.4``."""
    value = float(head.values[name])
    if value != value:
        return "–"
    error = float(head.errors[name]) if name in head.errors else float("nan")
    return number(value) + ("" if error != error else f" ± {number(error)}")
