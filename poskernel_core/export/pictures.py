"""Pictures made of rectangles, polygons and short texts, written as SVG or PNG alike.

No browser and no fonts from elsewhere: marks are polygons, so that they look the same everywhere.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from PIL import Image, ImageColor, ImageDraw, ImageFont

__all__ = ["Picture", "Point"]

Length = float | int
"""In pixels of the picture; shares, too, may be whole."""

Point = tuple[Length, Length]
Anchor = Literal["start", "middle", "end"]

PIXEL_RATIO = 3
"""Pixels of a PNG for each of the picture's own."""

_PIL_ANCHOR = {"start": "lm", "middle": "mm", "end": "rm"}


@dataclass(frozen=True)
class _Polygon:
    points: tuple[Point, ...]
    fill: str
    stroke: str
    width: Length
    opacity: Length
    tip: str


@dataclass(frozen=True)
class _Text:
    at: Point
    text: str
    size: Length
    fill: str
    anchor: Anchor
    bold: bool


@dataclass
class Picture:
    """A picture of a fixed size in pixels, drawn from back to front.

    Attributes:
        width, height: in pixels.
        paper: colour of the background, '#rrggbb' like all colours here.
    """

    width: Length
    height: Length
    paper: str
    _parts: list[_Polygon | _Text] = field(default_factory=list)

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
        """Add a rectangle; ``tip`` is shown where a pointer rests on it (SVG only)."""
        right, bottom = left + width, top + height
        corners = ((left, top), (right, top), (right, bottom), (left, bottom))
        self._parts.append(_Polygon(corners, fill, stroke, line, opacity, tip))

    def polygon(self, points: Sequence[Point], fill: str, opacity: Length = 1) -> None:
        """Add a filled polygon."""
        self._parts.append(_Polygon(tuple(points), fill, "", 0, opacity, ""))

    def text(
        self,
        x: Length,
        y: Length,
        text: str,
        size: Length,
        fill: str,
        *,
        anchor: Anchor = "start",
        bold: bool = False,
    ) -> None:
        """Add one line of text, its middle at the height ``y``."""
        self._parts.append(_Text((x, y), text, size, fill, anchor, bold))

    def svg(self) -> str:
        """Return the picture as the text of an SVG file."""
        width, height = f"{self.width:g}", f"{self.height:g}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" role="img">'
        )
        paper = f'<rect width="{width}" height="{height}" fill="{self.paper}"/>'
        return "\n".join([head, paper, *map(_as_svg, self._parts), "</svg>"])

    def png(self, scale: int = PIXEL_RATIO) -> bytes:
        """Return the picture as the bytes of a PNG file, ``scale`` times as large."""
        size = (round(self.width * scale), round(self.height * scale))
        image = Image.new("RGB", size, self.paper)
        draw = ImageDraw.Draw(image, "RGBA")
        for part in self._parts:
            if isinstance(part, _Text):
                _write(draw, part, scale)
            else:
                _fill(draw, part, scale)
        buffer = io.BytesIO()
        image.save(buffer, format="PNG", optimize=True, dpi=(96 * scale, 96 * scale))
        return buffer.getvalue()


def _as_svg(part: _Polygon | _Text) -> str:
    if isinstance(part, _Text):
        weight = ' font-weight="bold"' if part.bold else ""
        return (
            f'<text x="{part.at[0]:.2f}" y="{part.at[1]:.2f}" font-size="{part.size:g}" '
            f'fill="{part.fill}" text-anchor="{part.anchor}" dominant-baseline="central"{weight}>'
            f"{html.escape(part.text)}</text>"
        )
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in part.points)
    stroke = f' stroke="{part.stroke}" stroke-width="{part.width:g}"' if part.stroke else ""
    opacity = f' opacity="{part.opacity:g}"' if part.opacity < 1 else ""
    shape = f'<polygon points="{points}" fill="{part.fill or "none"}"{stroke}{opacity}'
    return f"{shape}><title>{html.escape(part.tip)}</title></polygon>" if part.tip else f"{shape}/>"


def _fill(draw: ImageDraw.ImageDraw, part: _Polygon, scale: int) -> None:
    points = [(x * scale, y * scale) for x, y in part.points]
    alpha = round(255 * part.opacity)
    if part.fill:
        draw.polygon(points, (*ImageColor.getrgb(part.fill)[:3], alpha))
    if part.stroke:
        ring = [*points, points[0], points[1]]
        colour = (*ImageColor.getrgb(part.stroke)[:3], alpha)
        draw.line(ring, colour, round(part.width * scale), joint="curve")


def _write(draw: ImageDraw.ImageDraw, part: _Text, scale: int) -> None:
    font = ImageFont.load_default(part.size * scale)
    at = (part.at[0] * scale, part.at[1] * scale)
    thick = scale * part.size / 42 if part.bold else 0
    draw.text(at, part.text, part.fill, font, _PIL_ANCHOR[part.anchor], stroke_width=thick)
