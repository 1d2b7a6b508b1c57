"""The dashboard's colours, in one place.

The scale is plasma: blue = local, magenta = slow decay, yellow-orange = uniform, as in the posts.
Its luminance increases monotonically, so it survives grey print and colour blindness; shapes
(`KIND_LOOKS`) give the same information without colour. `DIVERGING`, for values around 0, runs
blue - white - orange; blue (below 0) is the darker side in print. On a dark page 0 is its
background (`NIGHT`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from plotly.colors import hex_to_rgb, sequential

SCALE: tuple[str, ...] = tuple(sequential.Plasma)
DIVERGING = ("#1B45A8", "#4F76CC", "#A9BDEA", "#FFFFFF", "#F6D2A2", "#E69A3C", "#D27400")
NIGHT = ("#7FA6FF", "#4468BE", "#24386A", "#11181E", "#5C421B", "#B07A22", "#FFB020")

# Okabe-Ito with a lighter blue; the first four keep a contrast of 3:1 on white and near-black.
CATEGORICAL: tuple[str, ...] = (
    "#2A85C7",
    "#D55E00",
    "#009E73",
    "#C66A9D",
    "#E69F00",
    "#56B4E9",
    "#999999",
    "#F0E442",
)
BLUE, VERMILLION, GREEN, PURPLE = CATEGORICAL[:4]
NO_VALUE = "#9a9a9a"
"""Colour of a cell that has no value. It is hatched too."""
RED = "#E60026"  # outlines on maps, with a white edge


@dataclass(frozen=True)
class Kind:
    """How one kind of kernel is shown: `colour` is hex, `glyph` the outline of such a kernel."""

    colour: str
    glyph: str


KIND_LOOKS: dict[str, Kind] = {
    "local": Kind("#5B5BD6", "▌"),  # a spike
    "slow decay": Kind("#C13B82", "◣"),  # a slope
    "uniform": Kind("#D98200", "▄"),  # a plateau
}


def log_position(
    values: Float[np.ndarray, "*shape"], low: float, high: float
) -> Float[np.ndarray, "*shape"]:
    """Return places of `values` between `low` and `high` on a log scale, clipped to [0, 1].

    NaN stays NaN.
    """
    if not 0 < low < high:
        raise ValueError(f"a log scale needs 0 < low < high, got low={low:g}, high={high:g}")
    clipped = np.clip(values, low, high)
    return np.log(clipped / low) / np.log(high / low)


def scale_rgb(
    t: Float[np.ndarray, "*shape"], scale: tuple[str, ...] = SCALE
) -> UInt8[np.ndarray, "*shape 3"]:
    """Return `scale`'s colours at `t` (clipped to [0, 1]; on `SCALE`, 0 = local, 1 = uniform)."""
    stops = np.array([hex_to_rgb(stop) for stop in scale], dtype=float)
    at = np.linspace(0, 1, len(stops))
    channels = [np.interp(t, at, stops[:, channel]) for channel in range(3)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


def scale_hex(
    t: Float[np.ndarray, "row column"], scale: tuple[str, ...] = SCALE
) -> list[list[str]]:
    """Return `scale`'s colours at `t`, as '#rrggbb' per cell."""
    return [[f"#{bytes(rgb).hex()}" for rgb in row] for row in scale_rgb(t, scale)]


@lru_cache(maxsize=4096)
def ink_on(colour: str) -> str:
    """Return black or white, whichever has more WCAG contrast on `colour` ('#rrggbb')."""
    srgb = np.array(hex_to_rgb(colour)) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def fade(colour: str, alpha: float) -> str:
    """Return `colour` ('#rrggbb') as an rgba() string of opacity `alpha` in [0, 1]."""
    red, green, blue = hex_to_rgb(colour)
    return f"rgba({red},{green},{blue},{alpha:g})"


def hatched(colour: str, shape: str, **pattern: Any) -> dict[str, Any]:
    """Return Plotly options of bars told apart by hatching too; an empty `shape` is none."""
    lines = {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.7)"}
    return {"color": colour, "line_width": 0, "pattern": lines | pattern}
