"""All measures of one head as a table; each links to the page on it."""

from functools import partial
from typing import Final

from pages import FIRST, page_showing
from pages.head import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.plain import plain
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import errors_line, markdown_table
from poskernel_core.analyses.head_measures.figures import (
    bias_texts,
    measure_texts,
    measures_table,
    rank_texts,
)
from poskernel_core.common.result import Result

NO_BREAK: Final = "\N{NO-BREAK SPACE}"


def draw_measures(selection: Selection, found: Result) -> None:
    """Draw all measures of the head as a table."""
    head = selection.of(found)

    def draw() -> None:
        rows = []
        for title, question, value, bias, rank, unit, kinds in zip(
            head.words("measure"),
            head.words("question"),
            measure_texts(head),
            bias_texts(head),
            rank_texts(head),
            head.words("unit"),
            head.texts["kinds"],
            strict=True,
        ):
            page = page_showing(question)
            chosen = {"measure": title} if page == FIRST else {}
            link = f"[{title}]({page_address(page, selection.cell, **chosen)})"
            of = "" if any(kinds) else f" :small[({plain(unit)})]"
            place = rank.replace(" ", NO_BREAK)
            rows.append((f"{link}{of}", plain(value), bias, place))
        markdown_table(("Measure", "Value", "Bias", "Rank"), rows)
        errors_line(head)

    card(
        "measures",
        partial(measures_table, head),
        head,
        words.MEASURES,
        f"All measures of {selection.cell}, kernels at n = {selection.query}",
        draw,
    )
