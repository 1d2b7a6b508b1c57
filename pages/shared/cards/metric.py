"""One number large, with its error beside it."""

from typing import Any

from poskernel_core.common.rounding import number_and_error


def draw_metric(column: Any, label: str, text: str, meaning: str) -> None:
    """Draw a number as ``rounded`` wrote it, the error in smaller letters below it."""
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
