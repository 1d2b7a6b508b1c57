"""Large numbers side by side, with their errors."""

from collections.abc import Collection

import streamlit as st

from poskernel_core.common.rounding import number_and_error


def draw_metrics(metrics: Collection[tuple[str, str, str]]) -> None:
    """Draw numbers, each with its error below. ``metrics``: label, text by ``rounded``, meaning."""
    columns = st.columns(len(metrics))
    for column, (label, text, meaning) in zip(columns, metrics, strict=True):
        number, error = number_and_error(text)
        column.metric(
            label,
            number,
            help=meaning,
            border=True,
            delta=f"± {error}" if error else None,
            delta_arrow="off",
            delta_color="off",
            height="stretch",
        )
