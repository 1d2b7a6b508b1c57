"""Pictures of rectangles, polygons and short texts, as SVG.

Marks are polygons, which look the same everywhere.
"""

import html
from collections.abc import Sequence
from typing import Literal

Length = float | int
"""In pixels of the picture, or a share."""

Point = tuple[Length, Length]
Anchor = Literal["start", "middle", "end"]


class Picture:
    """A picture in pixels, drawn from back to front; its height is set when all is drawn.

    Attributes:
        width, height: in pixels.
    """

    def __init__(self, width: Length) -> None:
        """Begin with nothing, on a transparent background."""
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
