"""Lists of tokens with a number each, side by side."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from poskernel_core.common.result import Result
from poskernel_core.plotting.layout import visible

ROWS_SHOWN = 8
NUMBER = 70
"""Width in pixels of the numbers, so that they stay visible on a phone."""


def word_lists(found: Result, titles: tuple[str, str], unit: str, key: str) -> None:
    """Draw the tokens with the largest and the smallest numbers (``top``, ``bottom``)."""
    for place, name, title in zip(st.columns(2), ("top", "bottom"), titles, strict=True):
        table = pd.DataFrame(
            {
                title: [visible(word) for word in found.texts[f"{name}_words"]],
                unit: found.values[f"{name}_value"],
            }
        )
        columns = {unit: st.column_config.NumberColumn(format="%.3g", width=NUMBER)}
        place.dataframe(
            table,
            hide_index=True,
            column_config=columns,
            key=f"{key}-{name}",
            height=38 + 35 * min(ROWS_SHOWN, max(1, len(table))),
        )


def joined(words: Sequence[str], most: int = 8) -> str:
    """Return tokens in one line, with visible spaces and line breaks."""
    return "  ".join(visible(word) for word in words[:most])
