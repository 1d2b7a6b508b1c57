"""One query on the reader's text: its numbers, and every key's score split in two."""

from functools import partial
from math import isnan
from typing import Final

import streamlit as st

from pages.own_text import captions as words
from pages.shared.cards.card import card
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.own_text.figures import row_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed

NUMBERS: Final = {
    "Explained by position": ("position_share", "of the variance of this row's scores"),
    "Explained by content": ("content_share", "of the variance of this row's scores"),
    "Covariance": (
        "covariance_share",
        "twice the covariance of the two as a share: negative where they work against each other; "
        "the three add up to 1",
    ),
    "Kernel to attention": (
        "attention_distance",
        "total variation distance between the kernel and the attention to the same keys: 0 where "
        "position decides",
    ),
    "On skipped keys": ("skipped", "share of attention that goes to the skipped first keys"),
}


def draw_row(selection: Selection, row: Result) -> None:
    """Draw the chosen token's scores and attention, and what they say as numbers."""
    at, skip = int(row.chosen["query"]), selection.skip
    if at < skip:
        st.info(
            f"Nothing is left to show for the token at position {at}: it sees the keys up to its "
            f"own alone, and the first {skip} are skipped. Choose a later token, or set *Skip "
            "first keys* to a smaller number.",
            icon=":material/info:",
        )
        return
    columns = st.columns(len(NUMBERS))
    for column, (label, (name, meaning)) in zip(columns, NUMBERS.items(), strict=True):
        number = float(row.values[name])
        shown = "–" if isnan(number) else as_printed(f"{number:.3f}")
        column.metric(label, shown, help=meaning, border=True, height="stretch")
    title = f"{selection.cell}, query {row.chosen['query']}: position and content of the keys"
    card("row", partial(row_figure, row), row, words.ROW, title)
