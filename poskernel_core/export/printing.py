"""Figures for a paper: as wide as its columns, on white, with legend, caption and their font."""

import base64
import html
import json
import os
import re
import shutil
import subprocess
import textwrap
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from poskernel_core.analyses.views import figure_of
from poskernel_core.common.atomic_write import atomic_write
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.export.files import FOLDER, caption, head_of, signature, template
from poskernel_core.plotting.layout import MUTED, SELECTED
from poskernel_core.plotting.palette import CATEGORICAL

WIDTHS: Final = (85, 175)
"""Millimetres: one column, and two."""

SMALL, MIDDLE, LARGE = 28 / 3, 32 / 3, 12.0
"""Sizes of text in pixels: 7, 8 and 9 points."""

SECONDS: Final = 120
"""Time that a browser may take to draw a picture on a busy machine."""

NARROW: Final = 60
"""Pixels of a panel below which the title of its axis is smaller."""

LETTER: Final = 0.5
"""Width of a letter as a share of its size; most are narrower."""

TAG = re.compile(r"<[^>]*>")
SCRIPT: Final = FOLDER.joinpath("browser/print.js").read_text("utf-8")
AXIS: Final = {"automargin": True, "zeroline": False, "title": {"font": {"size": MIDDLE}}}
LOOK: Final = {
    "font": {"family": "PosKernel Sans", "size": SMALL, "color": "#000000"},
    "colorway": CATEGORICAL,
    "xaxis": AXIS | {"showgrid": False},
    "yaxis": AXIS,
}
BAR: Final = {"orientation": "h", "thickness": 8, "lenmode": "fraction", "len": 0.7,
              "x": 0, "xref": "paper", "xanchor": "left", "xpad": 0,
              "y": 1, "yref": "container", "yanchor": "top", "ypad": 15,
              "title": {"text": ""}}  # fmt: skip
UNIT: Final = {"x": 0, "xref": "paper", "y": 1, "yref": "container", "yanchor": "top",
               "pad": {"t": 2}, "font": {"size": SMALL}}  # fmt: skip
"""Above the bar: a title of the bar's own would lie over it."""
LEGEND: Final = {"orientation": "h", "x": 0, "xref": "container", "xanchor": "left",
                 "y": 0, "yref": "container", "yanchor": "bottom"}  # fmt: skip


def printed(figure: go.Figure, result: Result, width: int, title: str = "") -> dict[str, Any]:
    """Return a figure as ``print.js`` draws it, ``width`` millimetres wide.

    What waits for a click in the legend is left out, and what marks a selection. The default title
    is the figure's; it names the head. Around the picture are its title and caption.
    """
    title, cell = title or plain_title(figure), head_of(result)
    title = f"{cell}: {title}" if cell not in title else title
    spec = json.loads(figure.to_json())
    layout, pixels = spec["layout"], width * 96 / 25.4
    traces = [entry for entry in spec["data"]
              if entry.get("visible", True) is True and entry.get("name") != SELECTED]  # fmt: skip
    for trace in traces:
        if isinstance(trace.get("text"), list):
            trace["text"] = [str(label).replace(" ◀", "") for label in trace["text"]]
        _set_marks(trace.get("marker", {}), min(1.0, width / WIDTHS[1]))
    for gone in ("sliders", "updatemenus", "template", "title"):
        layout.pop(gone, None)
    top, high = layout.pop("margin", {}).get("t", 40), layout.pop("height", 380)
    area = max(130.0, (high - top - 45) * (0.3 + width / 300))
    for trace in traces:
        if "name" in trace:
            trace["name"] = _wrapped(trace["name"], pixels - 50, SMALL)
    for name, axis in layout.items():
        if re.fullmatch(r"[xy]axis\d*", name) and (text := axis.get("title", {}).get("text")):
            low, end = axis.get("domain", (0, 1))
            room = (pixels - 50 if name[0] == "x" else area) * (end - low)
            size = MIDDLE if room >= NARROW else SMALL
            axis["title"] |= {"text": _wrapped(text, room, size), "font": {"size": size}}
    notes = layout.get("annotations", [])
    unit = "".join(note["text"] for note in notes if note.get("name") == "unit")
    layout["annotations"] = [note for note in notes if note.get("name") != "unit"]
    for scene in (layout[name] for name in layout if name.startswith("scene")):
        eye = scene.setdefault("camera", {}).setdefault("eye", dict.fromkeys("xyz", 1.25))
        eye |= {axis: 1.5 * eye[axis] for axis in eye}  # room for the titles of its axes
    bars = _bars(traces)
    for bar in bars:
        text = unit or bar.get("title", {}).get("text", "").replace("<br>", " ")
        bar |= BAR
        layout["title"] = UNIT | {"text": text}
    _set_text(spec)
    layout |= {
        "template": {"layout": LOOK},
        "paper_bgcolor": "#ffffff",
        "width": pixels,
        "height": 0.8 * pixels if "scene" in layout else area + 50 + _upright(layout),
        "margin": {"l": 4, "r": 8, "t": 46 if bars else 10, "b": 4, "pad": 2},
        "legend": layout.get("legend", {}) | LEGEND,
    }
    return {
        "width": pixels,
        "mm": width,
        "title": textwrap.wrap(title, int(pixels / (LARGE * LETTER))),
        "caption": textwrap.wrap(signature(result), int(pixels / (SMALL * LETTER))),
        "about": caption(result),
        "data": traces,
        "layout": layout,
    }


def plain_title(figure: go.Figure) -> str:
    """Return a figure's own title as plain text."""
    return " ".join(html.unescape(TAG.sub(" ", figure.layout.title.text or "")).split())


def is_table(figure: go.Figure) -> bool:
    """Return whether a figure is a table, which no picture shows."""
    return any(trace.type == "table" for trace in figure.data)


def picture(figure: go.Figure, result: Result, kind: str, width: int = WIDTHS[0]) -> bytes:
    """Return a figure for a paper as the bytes of a file of that kind, ``"svg"`` or ``"png"``.

    It is ``width`` millimetres wide. Chrome or Chromium draws it, from a file and without a
    network; one that is not on the path is named by ``BROWSER_PATH``.

    Raises:
        BadRequest: the width is another, the figure is a table, or no browser draws it.
    """
    if width not in WIDTHS:
        raise BadRequest(f"Expected a width of {WIDTHS[0]} or {WIDTHS[1]} mm, got {width!r}.")
    if is_table(figure):
        raise BadRequest("Expected a figure, got a table: write its numbers instead.")
    browser = find_browser()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder, "page.html")
        page.write_text(print_page([printed(figure, result, width)], kind), encoding="utf-8")
        given = "headless", "no-sandbox", "dump-dom", f"user-data-dir={folder}"
        command = [browser, *(f"--{name}" for name in given), page.as_uri()]
        try:
            ran = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
            made = re.search(rb'<pre id="made">([\w+/=]+)</pre>', ran.stdout)
        except (OSError, subprocess.TimeoutExpired):
            made = None
    if made is None:
        raise BadRequest(
            f"Expected a picture from {browser!r} within {SECONDS} seconds, got none: write a "
            "stand-alone page."
        )
    return base64.b64decode(made[1])


def find_browser() -> str:
    """Return the browser that draws pictures.

    Raises:
        BadRequest: none is installed.
    """
    names = ("google-chrome", "chromium", "chromium-browser", "chrome", "msedge")
    browser = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        raise BadRequest(
            "Expected Chrome or Chromium on the path, which draws pictures, found neither: install "
            "one, name it in BROWSER_PATH, or write a stand-alone page."
        )
    return browser


def save_picture(result: Result, path: Path, width: int = WIDTHS[0]) -> None:
    """Write the figure of a result for a paper to a file, ``.svg`` or ``.png``: see `picture`."""
    made = picture(figure_of(result), result, picture_kind(path), width)
    atomic_write(path, lambda place: place.write_bytes(made))


def picture_kind(path: Path) -> str:
    """Return the kind of picture that a file's name asks for.

    Raises:
        BadRequest: it is none.
    """
    if path.suffix not in (".svg", ".png"):
        raise BadRequest(f"Expected a file that ends in .svg or .png, got '{path.name}'.")
    return path.suffix[1:]


def print_page(sheets: list[dict[str, Any]], kind: str) -> str:
    """Return a page that draws pictures and writes the first one, in base64, into ``#made``."""
    font = f"data:font/woff2;base64,{base64.b64encode(font_file().read_bytes()).decode()}"
    return template("print.html").render(
        plotly=get_plotlyjs(), script=SCRIPT, sheets=sheets, font=font, kind=kind
    )


@cache
def font_file() -> Path:
    """Return the font of the pages, which comes with Streamlit.

    Raises:
        BadRequest: it is not installed, as for those who only ask a server.
    """
    spec = find_spec("streamlit")
    if spec is None:
        raise BadRequest("Pictures need the font of Streamlit: install streamlit, or ask a server.")
    folder = Path(spec.origin or "").parent
    return next(folder.glob("static/static/media/SourceSansVF-Upright*.woff2"))


def _wrapped(text: str, room: float, size: float) -> str:
    plain = text.replace("<br>", " ")
    return text if "<" in plain else "<br>".join(textwrap.wrap(plain, int(room / (size * LETTER))))


def _upright(layout: dict[str, Any]) -> float:
    """Return how high the labels are that stand upright under a figure, in pixels."""
    upright = [value for value in layout.values()
               if isinstance(value, dict) and value.get("tickangle") == -90]  # fmt: skip
    lengths = [len(text) for axis in upright for text in axis.get("ticktext", ())]
    return max(lengths, default=0) * SMALL * LETTER


def _bars(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    maps = [
        trace for trace in traces if trace["type"] == "heatmap" and trace.get("showscale", True)
    ]
    marks = [trace["marker"] for trace in traces if "colorbar" in trace.get("marker", {})]
    return [item.setdefault("colorbar", {}) for item in (*maps, *marks)]


def _set_marks(marker: dict[str, Any], share: float) -> None:
    """Make the marks of points smaller, in place: 10 pixels of a page are 3.6 points at 85 mm."""
    line = marker.get("line", {})
    for part, name in ((marker, "size"), (line, "width")):
        if isinstance(part.get(name), int | float):
            part[name] *= share


def _set_text(node: Any) -> None:
    """Set text of all parts in 7 to 9 points, in place, and grey text in black."""
    for name, child in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(child, dict | list):
            _set_text(child)
        if isinstance(child, dict) and str(name).endswith("font"):
            if isinstance(size := child.get("size"), int | float):
                child["size"] = min(max(size, SMALL), LARGE)
            if child.get("color") == MUTED:
                child["color"] = "#000000"
