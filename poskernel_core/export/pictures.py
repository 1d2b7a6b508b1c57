"""Pictures of rectangles, polygons and short texts, as SVG and PNG.

They need no browser and no external fonts: marks are polygons, which look the same everywhere.
"""

import html
import io
from collections.abc import Sequence
from typing import Literal

from PIL import Image, ImageColor, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

Length = float | int
"""In pixels of the picture, or a share."""

Point = tuple[Length, Length]
Anchor = Literal["start", "middle", "end"]

PIXEL_RATIO = 3
"""PNG pixels per picture pixel."""

_PIL_ANCHOR = {"start": "lm", "middle": "mm", "end": "rm"}


class Picture:
    """A picture of a fixed size in pixels, drawn from back to front.

    Attributes:
        width, height: in pixels.
    """

    def __init__(self, width: Length, height: Length, paper: str, about: str = "") -> None:
        """Fill the background with the colour `paper`, '#rrggbb' like all colours here.

        ``about`` is what the file says of itself.
        """
        self.width, self.height, self._about = width, height, about
        size = (round(width * PIXEL_RATIO), round(height * PIXEL_RATIO))
        self._image = Image.new("RGB", size, paper)
        self._draw = ImageDraw.Draw(self._image, "RGBA")
        box = f'width="{width:g}" height="{height:g}"'
        self._svg = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {width:g} {height:g}" '
            'font-family="sans-serif" role="img">',
            f"<desc>{html.escape(about)}</desc>",
            f'<rect {box} fill="{paper}"/>',
        ]

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
        """Add a rectangle with an optional tooltip ``tip`` (SVG only)."""
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
        pixels = [(x * PIXEL_RATIO, y * PIXEL_RATIO) for x, y in points]
        alpha = round(255 * opacity)
        if fill:
            self._draw.polygon(pixels, (*ImageColor.getrgb(fill)[:3], alpha))
        if stroke:
            colour = (*ImageColor.getrgb(stroke)[:3], alpha)
            self._draw.line(
                [*pixels, *pixels[:2]], colour, round(line * PIXEL_RATIO), joint="curve"
            )

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
        """Add one line of text, vertically centred at ``y``."""
        weight = ' font-weight="bold"' if bold else ""
        self._svg.append(
            f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size:g}" fill="{fill}" '
            f'text-anchor="{anchor}" dominant-baseline="central"{weight}>{html.escape(text)}</text>'
        )
        font = ImageFont.load_default(size * PIXEL_RATIO)
        at = (x * PIXEL_RATIO, y * PIXEL_RATIO)
        thick = PIXEL_RATIO * size / 42 if bold else 0
        self._draw.text(at, text, fill, font, _PIL_ANCHOR[anchor], stroke_width=thick)

    def svg(self) -> str:
        """Return the picture as the text of an SVG file."""
        return "\n".join([*self._svg, "</svg>"])

    def png(self) -> bytes:
        """Return the picture as the bytes of a PNG file, three times as large."""
        buffer, dots, told = io.BytesIO(), 96 * PIXEL_RATIO, PngInfo()
        told.add_itxt("Description", self._about)
        self._image.save(buffer, format="PNG", optimize=True, dpi=(dots, dots), pnginfo=told)
        return buffer.getvalue()
