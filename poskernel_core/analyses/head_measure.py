"""The declaration of a measure that colours the grid of all heads."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class HeadMeasure:
    """A number or kind per head that can colour the grid of all heads.

    Attributes:
        title: its name in the list of measures.
        value: the name of the value, ``[layer, head]`` at one query position.
        unit: stands next to the legend; an arrow in it says which direction is better.
        reading: one sentence on what dark and bright mean.
        scale: how numbers become colours: ``linear`` from 0, ``unit`` from 0 to 1, ``log``,
            ``diverging`` around 0, ``cosine`` (unit or diverging), ``labels`` for codes.
        floor: lower end of a log scale; smaller numbers are drawn as this number.
        most: the value whose maximum is the upper end of a log scale that begins at 1.
        last: an axis to reduce to its last entry.
        only: the architectures or position schemes that have it; empty: all.
        of_windows: whether only models with windowed or chunked layers have it.
    """

    title: str
    value: str
    unit: str
    reading: str = ""
    scale: Literal["linear", "unit", "log", "diverging", "cosine", "labels"] = "linear"
    floor: float | None = None
    most: str = ""
    last: str = ""
    only: tuple[str, ...] = ()
    of_windows: bool = False
