"""The grid of heads as an SVG picture for a paper, of the same values as in the browser.

Marks are polygons, which look the same everywhere.
"""

import html
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from poskernel_core.common.heads import parse_cell
from poskernel_core.plotting.palette import KIND_LOOKS
from poskernel_core.plotting.sparklines import heights_of

Length = float | int
"""In pixels of the picture, or a share."""

Point = tuple[Length, Length]
Anchor = Literal["start", "middle", "end"]

GAP, LEFT, TOP, MARGIN = 2, 34, 20, 4
BAR = 220
LINES = 13
LETTER = 4.7
"""Pixels of a line, and of a letter in it; most are narrower."""
PAPER, INK = "#ffffff", "#000000"
OUTLINE = "#808080"
LINE = 1.2
HATCH = 5
CORNER = 6  # pixels of the marks in corners where cells show kernels
ON_HOVER = re.compile(r"[,;] [\w ]+ on hover")
KNOWN = "★"
GLYPHS: dict[str, tuple[Point, ...]] = {
    KIND_LOOKS["local"].glyph: ((0.28, 0.1), (0.56, 0.1), (0.56, 0.9), (0.28, 0.9)),
    KIND_LOOKS["slow decay"].glyph: ((0.1, 0.15), (0.9, 0.9), (0.1, 0.9)),
    KIND_LOOKS["uniform"].glyph: ((0.1, 0.55), (0.9, 0.55), (0.9, 0.9), (0.1, 0.9)),
    KNOWN: ((0.5, 0.04), (0.61, 0.37), (0.97, 0.37), (0.68, 0.58), (0.79, 0.92),
          (0.5, 0.71), (0.21, 0.92), (0.32, 0.58), (0.03, 0.37), (0.39, 0.37)),
    "◥": ((0.2, 0.2), (0.8, 0.2), (0.8, 0.8)),
    "▖": ((0.0, 0.4), (0.6, 0.4), (0.6, 1.0), (0.0, 1.0)),
    "∿": ((0.0, 0.5), (0.25, 0.2), (0.5, 0.5), (0.75, 0.8),
          (1.0, 0.5), (0.75, 0.98), (0.5, 0.68), (0.25, 0.38)),
}  # fmt: skip
"""Outlines of the marks in a square of side 1, from its upper left corner."""


class Picture:
    """A picture in pixels, drawn from back to front; its height is set when all is drawn.

    Attributes:
        width, height: in pixels.
    """

    def __init__(self, width: Length) -> None:
        self.width, self.height = width, width
        self._svg: list[str] = []

    def rectangle(
        self,
        left: Length,
        top: Length,
        width: Length,
        height: Length,
        fill: str = "",
        *,
        stroke: str = "",
        line: Length = 1,
        opacity: Length = 1,
        tip: str = "",
    ) -> None:
        """Add a rectangle with an optional tooltip ``tip``."""
        right, bottom = left + width, top + height
        corners = ((left, top), (right, top), (right, bottom), (left, bottom))
        self.polygon(corners, fill, opacity, stroke=stroke, line=line, tip=tip)

    def polygon(
        self,
        points: Sequence[Point],
        fill: str,
        opacity: Length = 1,
        *,
        stroke: str = "",
        line: Length = 1,
        tip: str = "",
    ) -> None:
        """Add a polygon, filled or outlined or both."""
        at = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        edge = f' stroke="{stroke}" stroke-width="{line:g}"' if stroke else ""
        clear = f' opacity="{opacity:g}"' if opacity < 1 else ""
        told = f"<title>{html.escape(tip)}</title>" if tip else ""
        self._svg.append(
            f'<polygon points="{at}" fill="{fill or "none"}"{edge}{clear}>{told}</polygon>'
        )

    def text(self, x: Length, y: Length, text: str, anchor: Anchor = "start") -> None:
        """Add one line of text, 7 points high, vertically centred at ``y``."""
        self._svg.append(
            f'<text x="{x:.2f}" y="{y:.2f}" dy=".35em" font-size="9.333" text-anchor="{anchor}">'
            f"{html.escape(text)}</text>"
        )

    def svg(self) -> str:
        """Return the picture as the text of an SVG element."""
        size = f'width="{self.width:g}" height="{self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return "\n".join([head, *self._svg, "</svg>"])


def grid_picture(data: dict[str, Any], width: float) -> Picture:
    """Draw the same as `head_grid` in a width in pixels: cells in order, and the legend."""
    rows, columns = len(data["rows"]), len(data["rows"][0])
    cell = (width - LEFT - MARGIN) / columns - GAP
    high = max(9, min(34, 400 // rows))
    picture, top = Picture(width), TOP
    picture.text(LEFT - 8, top - 10, data["corner"], "end")
    step = math.ceil(4 * LETTER / (cell + GAP))
    for j, name in list(enumerate(data["headers"]))[::step]:
        picture.text(LEFT + j * (cell + GAP) + cell / 2, top - 10, name, "middle")
    chosen, curves = None, heights_of(data["curves"]) if "curves" in data else None
    for i, row in enumerate(data["rows"]):
        y = top + i * (high + GAP)
        if high + GAP >= LINES or i % 2 == 0:
            picture.text(LEFT - 8, y + high / 2, f"L{i}", "end")
        for j, each in enumerate(row):
            x = LEFT + j * (cell + GAP)
            curve = None if curves is None else curves[parse_cell(each["name"], rows, columns)]
            _add_cell(picture, each, (x, y), (cell, high), curve)
            chosen = (x, y) if each["name"] == data["selected"] else chosen
    if chosen is not None:
        x, y = chosen  # dark and light, so that it is visible on any colour
        for stroke, line in ((PAPER, 5), (INK, 2)):
            picture.rectangle(x - 1.5, y - 1.5, cell + 3, high + 3, stroke=stroke, line=line)
    _add_legend(picture, data, top + rows * (high + GAP) + 12)
    return picture


def _add_cell(
    picture: Picture, cell: dict[str, Any], at: Point, size: Point, curve: np.ndarray | None
) -> None:
    opacity = 0.15 if cell["dimmed"] else 1
    picture.rectangle(
        *at, *size, cell["colour"], stroke=OUTLINE, line=0.6, opacity=opacity, tip=cell["label"]
    )
    width, high = size
    for far in range(HATCH, int(width + high), HATCH) if cell["missing"] else ():
        ends = (max(0, far - high), min(far, high)), (min(far, width), max(0, far - width))
        line = [(at[0] + x, at[1] + y) for x, y in ends]  # white stripes, to the upper right
        picture.polygon(line, "", opacity, stroke=PAPER)
    if curve is not None:
        _add_curve(picture, curve, at, size, cell["ink"], opacity)
        if KNOWN in cell["mark"]:
            right, top = at[0] + size[0], at[1]
            corner = [(right - CORNER, top), (right, top), (right, top + CORNER)]
            picture.polygon(corner, cell["ink"], opacity)
        if "▖" in cell["mark"]:
            edge = CORNER - 1
            foot = at[1] + high - edge
            picture.rectangle(at[0], foot, edge, edge, cell["ink"], opacity=opacity)
        return
    side = min(12.0, 0.62 * size[1])
    left = at[0] + (size[0] - side * len(cell["mark"])) / 2
    _add_marks(
        picture, cell["mark"], (left, at[1] + (size[1] - side) / 2), side, cell["ink"], opacity
    )


def _add_curve(
    picture: Picture, heights: np.ndarray, at: Point, size: Point, ink: str, opacity: float
) -> None:
    if np.isnan(heights).any():
        return
    width = size[0] / len(heights)
    edge = [
        (at[0] + (place + side) * width, at[1] + size[1] * (0.97 - 0.92 * float(height)))
        for place, height in enumerate(heights)
        for side in (0, 1)
    ]
    picture.polygon([*edge, *((x, y + LINE) for x, y in reversed(edge))], ink, opacity)


def _add_marks(
    picture: Picture, marks: str, at: Point, side: float, ink: str, opacity: float = 1
) -> None:
    for place, mark in enumerate(marks):
        x = at[0] + place * side
        picture.polygon([(x + side * a, at[1] + side * b) for a, b in GLYPHS[mark]], ink, opacity)


def _add_legend(picture: Picture, data: dict[str, Any], top: float) -> None:
    """Draw the unit, the colour bar with its ticks, and the legend of the marks; set the height.

    A mark of some heads names them: on paper nobody can point at a cell.
    """
    steps, room = data["legend"], picture.width - LEFT - MARGIN
    for line in textwrap.wrap(data["legendTitle"], int(room / LETTER)):
        picture.text(LEFT, top, line)
        top += LINES
    width, long = BAR / max(1, len(steps)), BAR * (1 - 1 / max(1, len(steps)))
    for place, (colour, _) in enumerate(steps):
        picture.rectangle(LEFT + place * width, top - 4, width + 0.3, 8, colour)
    for place, (_, text) in enumerate(steps):
        if text:
            x = LEFT + long * place / max(1, len(steps) - 1) + width / 2
            picture.rectangle(x - 0.5, top + 4, 1, 3, INK)
            picture.text(x, top + 13, text, "middle")
    top += 2.5 * LINES if steps else 0
    cells = [cell for row in data["rows"] for cell in row]
    for glyph, meaning in data["glyphs"]:
        told = ON_HOVER.sub("", meaning)
        if told != meaning and glyph != "∿":
            named = [cell["name"] for cell in cells if KNOWN in cell["mark"]]
            told = f"{told}: {', '.join(named) or 'none'}"
        if glyph in GLYPHS:
            _add_marks(picture, glyph, (LEFT, top - 5), 10, INK)
        else:
            picture.rectangle(LEFT, top - 5, 10, 10, INK, opacity=0.15)
        for line in textwrap.wrap(told, int((room - 18) / LETTER)):
            picture.text(LEFT + 18, top, line)
            top += LINES
    picture.height = top
