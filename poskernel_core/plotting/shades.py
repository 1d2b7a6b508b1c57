"""Colours and a legend for numbers of all heads, on a linear, log or diverging scale, or by kind.

The grid and its downloads share these scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from poskernel_core.plotting.layout import log_ticks, number
from poskernel_core.plotting.palette import (
    CATEGORICAL,
    DIVERGING,
    KIND_LOOKS,
    NIGHT,
    NO_VALUE,
    SCALE,
    log_position,
    scale_hex,
)

STEPS = 121

Legend = list[tuple[str, str]]


@dataclass(frozen=True)
class Shade:
    """Colours of heads.

    Attributes:
        colours: ``[layer][head]``, '#rrggbb'; cells of the colour ``NO_VALUE`` are drawn hatched.
        legend: colours at even steps, each with a tick label or "".
        night: the same for a dark page, if it differs.
    """

    colours: list[list[str]]
    legend: Legend
    night: Shade | None = None

    def on(self, dark: bool) -> Shade:
        """Return the colours for a light or a dark page."""
        return self.night or self if dark else self


def shaded(
    values: np.ndarray,
    scale: str,
    floor: float | None = None,
    labels: Sequence[str] = (),
    high: float | None = None,
) -> Shade:
    """Shade numbers or codes ``[layer, head]`` of a declared measure by its scale and floor.

    ``labels`` are those of the codes; ``high`` is the upper end of a log scale.
    """
    match scale:
        case "labels":
            looks = [KIND_LOOKS[label].colour for label in labels if label in KIND_LOOKS]
            return categories(np.nan_to_num(values, nan=-1), labels, looks)
        case "log":
            if floor is None or high is not None:
                return logarithmic(values, floor, high)
            return logarithmic(np.fmax(values, floor))
        case "unit" | "cosine" if not np.nanmin(values, initial=0) < 0:
            return linear(values, 1.0)
        case "diverging" | "cosine":
            return diverging(values)
    return linear(values, 1.0 if scale == "unit" else None)


def linear(values: np.ndarray, high: float | None = None) -> Shade:
    """Shade values from 0 (dark) to ``high`` (default: the largest)."""
    top = max(0.01, float(np.nanmax(values, initial=0))) if high is None else high
    return _shade(values / top, SCALE, {0: 0.0, STEPS // 2: top / 2, STEPS - 1: top})


def logarithmic(values: np.ndarray, low: float | None = None, high: float | None = None) -> Shade:
    """Shade positive values between ``low`` and ``high`` (default: the ends) by their logarithm."""
    there = values[np.isfinite(values) & (values > 0)]
    low = low or (float(there.min()) if there.size else 1.0)
    high = max(high or (float(there.max()) if there.size else 2.0), 1.0001 * low)
    ticks = {
        round((STEPS - 1) * np.log(tick / low) / np.log(high / low)): tick
        for tick in log_ticks(low, high) or (low, high)
    }
    with np.errstate(invalid="ignore"):
        share = log_position(
            np.where(values > 0, values, np.where(values == 0, low, np.nan)), low, high
        )
    return _shade(share, SCALE, ticks)


def diverging(values: np.ndarray) -> Shade:
    """Shade values on both sides of 0, up to the largest absolute value."""
    reach = max(0.01, float(np.abs(np.nan_to_num(values)).max()))
    ticks = {0: -reach, STEPS // 2: 0.0, STEPS - 1: reach}
    share = 0.5 + 0.5 * values / reach
    return replace(_shade(share, DIVERGING, ticks), night=_shade(share, NIGHT, ticks))


def categories(codes: np.ndarray, names: Sequence[str], colours: Sequence[str] = ()) -> Shade:
    """Shade codes by the colours of their names; a negative code means that there is no value."""
    colours = colours or CATEGORICAL[: len(names)]
    cells = [[colours[c] if c >= 0 else NO_VALUE for c in row] for row in codes.astype(int)]
    width = STEPS // len(names)
    legend = [
        (colour, name if step == width // 2 else "")
        for colour, name in zip(colours, names, strict=True)
        for step in range(width)
    ]
    return Shade(cells, legend)


def _shade(share: np.ndarray, scale: tuple[str, ...], ticks: dict[int, float]) -> Shade:
    missing, colours = np.isnan(share), scale_hex(np.nan_to_num(share), scale)
    cells = [
        [NO_VALUE if gone else colour for colour, gone in zip(row, out, strict=True)]
        for row, out in zip(colours, missing, strict=True)
    ]
    bar = scale_hex(np.linspace(0, 1, STEPS)[None], scale)[0]
    labels = [number(float(f"{ticks[i]:.2g}")) if i in ticks else "" for i in range(STEPS)]
    return Shade(cells, list(zip(bar, labels, strict=True)))
