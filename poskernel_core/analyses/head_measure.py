"""Declarations of measures that colour the grid of all heads."""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from poskernel_core.common.result import declarations

Scale = Literal["linear", "unit", "log", "diverging", "cosine", "labels"]


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
    scale: Scale = "linear"
    floor: float | None = None
    most: str = ""
    last: str = ""
    only: tuple[str, ...] = ()
    of_windows: bool = False


_DECLARED = re.compile(
    rf"^(.+?) \[(\w+), ({'|'.join(get_args(Scale))})\], ((?:\(.*?\)|[^:(])+): (.+)$"
)


def grid_measures(text: str, **more: Any) -> tuple[HeadMeasure, ...]:
    """Declare measures by :func:`declarations` such as ``title [value, scale], unit: reading``.

    ``more`` are further attributes, of all.
    """
    rows = map(_DECLARED.findall, declarations(text))
    return tuple(
        HeadMeasure(title, value, unit, reading, scale, **more)
        for ((title, value, scale, unit, reading),) in rows
    )
