"""The grid of heads as a picture for a paper, drawn from the same values as in the browser."""

from typing import Any

import numpy as np

from poskernel_core.common.heads import parse_cell
from poskernel_core.export.pictures import Picture, Point
from poskernel_core.plotting.palette import KIND_LOOKS
from poskernel_core.plotting.sparklines import heights_of

CELL_WIDTHS = (58, 44, 30)  # for up to 12 heads in a layer, for up to 24, for more
GAP, LEFT, TOP, MARGIN = 2, 46, 22, 12
LEGEND = 78
BAR = 300
PAPER, INK = "#ffffff", "#1b2630"
OUTLINE = "#808080"
LINE = 1.2
HATCH = 5
CORNER = 6  # pixels of the marks in corners where cells show kernels
GLYPHS: dict[str, tuple[Point, ...]] = {
    KIND_LOOKS["local"].glyph: ((0.28, 0.1), (0.56, 0.1), (0.56, 0.9), (0.28, 0.9)),
    KIND_LOOKS["slow decay"].glyph: ((0.1, 0.15), (0.9, 0.9), (0.1, 0.9)),
    KIND_LOOKS["uniform"].glyph: ((0.1, 0.55), (0.9, 0.55), (0.9, 0.9), (0.1, 0.9)),
    "★": ((0.5, 0.04), (0.61, 0.37), (0.97, 0.37), (0.68, 0.58), (0.79, 0.92),
          (0.5, 0.71), (0.21, 0.92), (0.32, 0.58), (0.03, 0.37), (0.39, 0.37)),
    "◥": ((0.2, 0.2), (0.8, 0.2), (0.8, 0.8)),
    "▖": ((0.0, 0.4), (0.6, 0.4), (0.6, 1.0), (0.0, 1.0)),
    "∿": ((0.0, 0.5), (0.25, 0.2), (0.5, 0.5), (0.75, 0.8),
          (1.0, 0.5), (0.75, 0.98), (0.5, 0.68), (0.25, 0.38)),
}  # fmt: skip
"""Outlines of the marks in a square of side 1, from its upper left corner."""


def grid_picture(data: dict[str, Any], title: str) -> Picture:
    """Draw the same as `head_grid`: cells in order, with marks or curves, and the legend."""
    rows, columns = len(data["rows"]), len(data["rows"][0])
    cell = CELL_WIDTHS[(columns > 12) + (columns > 24)]
    high = max(16, min(34, 400 // rows))
    width = max(LEFT + columns * (cell + GAP) + MARGIN, 2 * MARGIN + LEFT + BAR + 180)
    top = MARGIN + 26 + TOP
    bottom = top + rows * (high + GAP)
    picture = Picture(width, bottom + LEGEND, PAPER, title)
    picture.text(MARGIN, MARGIN + 9, title, 14, INK, bold=True)
    picture.text(LEFT - 8, top - 11, data["corner"], 11, INK, anchor="end")
    for j, name in enumerate(data["headers"]):
        if cell > CELL_WIDTHS[-1] or j % 2 == 0:
            middle = LEFT + j * (cell + GAP) + cell / 2
            picture.text(middle, top - 11, name, 11, INK, anchor="middle")
    chosen, curves = None, heights_of(data["curves"]) if "curves" in data else None
    for i, row in enumerate(data["rows"]):
        y = top + i * (high + GAP)
        picture.text(LEFT - 8, y + high / 2, f"L{i}", 11, INK, anchor="end")
        for j, each in enumerate(row):
            x = LEFT + j * (cell + GAP)
            curve = None if curves is None else curves[parse_cell(each["name"], rows, columns)]
            _add_cell(picture, each, (x, y), (cell, high), curve)
            chosen = (x, y) if each["name"] == data["selected"] else chosen
    if chosen is not None:
        x, y = chosen  # dark and light, so that it is visible on any colour
        for stroke, line in ((PAPER, 5), (INK, 2)):
            picture.rectangle(x - 1.5, y - 1.5, cell + 3, high + 3, stroke=stroke, line=line)
    _add_legend(picture, data, bottom + 12)
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
        if "★" in cell["mark"]:
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
    """Draw a step curve of heights from 0 to 1, from left to right; nothing for NaN."""
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
    """Draw the unit, the colour bar with its ticks, and the legend of the marks."""
    picture.text(LEFT, top, data["legendTitle"], 12, INK)
    steps = data["legend"]
    width = BAR / max(1, len(steps))
    for place, (colour, _) in enumerate(steps):
        picture.rectangle(LEFT + place * width, top + 12, width + 0.3, 12, colour)
    for place, (_, text) in enumerate(steps):
        if text:
            x = LEFT + BAR * place / max(1, len(steps) - 1)
            picture.rectangle(x - 0.5, top + 24, 1, 4, INK)
            picture.text(x, top + 36, text, 11, INK, anchor="middle")
    for place, (glyph, meaning) in enumerate(data["glyphs"]):
        y = top + 16 * place
        _add_marks(picture, glyph, (LEFT + BAR + 34, y - 5), 10, INK)
        picture.text(LEFT + BAR + 52, y, meaning, 11, INK)
