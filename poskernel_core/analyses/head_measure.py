"""The declaration of a measure that colours the grid of all heads."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from poskernel_core.plotting.palette import KIND_LOOKS
from poskernel_core.plotting.shades import Shade, categories, diverging, linear, logarithmic


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

    def shade(
        self, values: np.ndarray, labels: tuple[str, ...] = (), high: float | None = None
    ) -> Shade:
        """Return the colours of numbers or codes ``[layer, head]`` and their legend.

        ``labels`` are those of the codes; ``high`` is the upper end of a log scale.
        """
        match self.scale:
            case "labels":
                looks = [KIND_LOOKS[label].colour for label in labels if label in KIND_LOOKS]
                return categories(np.nan_to_num(values, nan=-1), labels, tuple(looks))
            case "log":
                if self.floor is None or high is not None:
                    return logarithmic(values, self.floor, high)
                return logarithmic(np.fmax(values, self.floor))
            case "diverging":
                return diverging(values)
            case "cosine" if np.nanmin(values, initial=0) < 0:
                return diverging(values)
            case "unit" | "cosine":
                return linear(values, 1.0)
        return linear(values)
