"""One query on the reader's text: its numbers, and every key's score in two parts."""

from functools import partial
from math import isnan
from typing import Final

from pages.own_text import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.plain import say
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.own_text.figures import row_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed

SHARE: Final = "of the variance of this row's scores"
NUMBERS: Final = (
    ("Explained by position", "position_share", SHARE),
    ("Explained by content", "content_share", SHARE),
    (
        "Covariance",
        "covariance_share",
        "twice the covariance of position and content, as a share; the three shares add up to 1",
    ),
    (
        "Kernel to attention",
        "attention_distance",
        "total variation distance to the attention on the same keys; 0: position decides",
    ),
    ("On skipped keys", "skipped", "share of attention on the skipped first keys"),
)


def draw_row(selection: Selection, row: Result) -> None:
    """Draw the chosen token's numbers, scores and attention."""
    at, skip = int(row.chosen["query"]), selection.skip
    if at < skip:
        say(
            f"No key is left for the token at position {at}: the first {skip} are skipped. Choose "
            "a later token, or a smaller skip."
        )
        return
    numbers = [float(row.values[name]) for _, name, _ in NUMBERS]
    texts = ["–" if isnan(each) else as_printed(f"{each:.3f}") for each in numbers]
    draw_metrics(
        [(label, text, told) for (label, _, told), text in zip(NUMBERS, texts, strict=True)]
    )
    title = f"{selection.cell}, query {row.chosen['query']}: position and content of the keys"
    card("row", partial(row_figure, row), row, words.ROW, title)
