"""What the browser draws of a card: its head, and a Plotly figure in the page's colours.

A figure is made once for each result, and drawn when it comes near.
"""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import plotly
import plotly.graph_objects as go
import streamlit as st
from cachetools import LRUCache, cached

from pages.shared.look.component import SHARED, served
from poskernel_core.analyses.views import why_empty
from poskernel_core.common.result import Result
from poskernel_core.export.files import chart_config
from poskernel_core.export.printing import SCRIPT as PRINT_SCRIPT
from poskernel_core.export.printing import WIDTHS, font_file, plain_title
from poskernel_core.plotting.layout import (
    THIRD,
    broken,
    is_square,
    say_if_empty,
    set_height,
    without_title,
)
from poskernel_core.plotting.maps import on_dark
from poskernel_core.plotting.palette import CATEGORICAL

Make: TypeAlias = "Callable[[], go.Figure | Sequence[go.Figure]] | None"
"""Makes the figures of a card; None for a grid of heads or a table."""
MAX_FIGURES = 256
"""Figures in the cache, of about a hundred kilobytes each."""
HEAD: Final = 80
"""Room for the head of a card until it is there, pixels."""
INK: Final = {False: "#3b4650", True: "#c9d3da"}
"""Text on a light and on a dark page."""

FONT: Final = "'Source Sans', sans-serif"
LIBRARY: Final = f"plotly.js?{plotly.__version__}"

SCRIPT: Final = PRINT_SCRIPT + Path(__file__).with_suffix(".js").read_text("utf-8")
DRAWN = st.components.v2.component(
    "pk-figure",
    html="<div class='room'></div>",
    js=served(SCRIPT),
    isolate_styles=False,
)
PICTURES = st.components.v2.component(
    "pk-pictures",
    html="<div class='choice pictures' role='group' aria-label='Pictures for a paper'></div>",
    js=served(SCRIPT),
    css=SHARED.with_suffix(".css").read_text("utf-8"),
)


@dataclass(frozen=True)
class Ready:
    """A figure as the browser draws it: as JSON, with its former title and its size.

    ``size`` names the rule of ``style.css`` for the height; "" is ``height`` pixels.
    """

    spec: str
    title: str
    height: int
    size: str


@dataclass(frozen=True)
class Head:
    """The head of a card: the title, whose anchor is ``name``, the finding, and the menu's button.

    ``note`` is called with whether the menu is to be open.
    """

    name: str
    title: str
    finding: str
    note: Callable[[bool], None]


def chart(
    name: str,
    figure: Make,
    *,
    titled: bool = False,
    square: bool = False,
    pick: Callable[[list[str], bool], None] | None = None,
) -> None:
    """Draw one figure.

    It keeps its title if it is ``titled``. A ``square`` map is a third of the page wide, and as
    high as wide. ``pick`` is called when points are chosen, with what their ``customdata`` begins
    with, and whether by a box or a loop (else by a click).
    """
    draw_ready(name, ready(figure, titled=titled, square=square), pick=pick)


def charts(figures: Mapping[str, Callable[[], go.Figure]], *, square: bool = False) -> None:
    """Draw figures with their titles side by side; a part of one is shown larger in all."""
    for column, (name, figure) in zip(st.columns(len(figures)), figures.items(), strict=True):
        with column:
            drawn = ready(figure, titled=True, square=square)
            draw_ready(name, drawn, linked=True)


def all_of(figures: Mapping[str, Callable[[], go.Figure]]) -> Make:
    """Return what makes all that ``charts`` draws, for the downloads of its card."""
    return lambda: [make() for make in figures.values()]


def draw_ready(
    name: str,
    ready: Ready,
    pick: Callable[[list[str], bool], None] | None = None,
    *,
    linked: bool = False,
    head: Head | None = None,
) -> None:
    """Draw a figure that is ready, under the ``head`` of its card if it has one of its own."""
    key = f"figure-{name}"
    data = {
        "spec": ready.spec,
        "config": chart_config(name),
        "title": ready.title or name,
        "linked": linked,
        "library": LIBRARY,
        "height": "" if ready.size else f"{ready.height}px",
    }

    def picked() -> None:
        click = st.session_state[key]["picked"]
        if pick is not None and click:
            pick(click["names"], click["many"])

    place = st.container(key=f"square-{ready.size}-{name}") if ready.size else nullcontext()
    with place:
        _draw(key, data, head, "content" if ready.size else ready.height, on_picked_change=picked)


def draw_head(name: str, head: Head) -> None:
    """Draw the head of a card whose contents are not a single figure."""
    _draw(f"head-{name}", {}, head, 0)


def _draw(key: str, data: dict[str, Any], head: Head | None, height: Any, **more: Any) -> None:
    if head is not None:
        height = height if height == "content" else height + HEAD
        data |= {"head": {"name": head.name, "title": head.title, "finding": head.finding}}
        more["on_menu_change"] = lambda: head.note(st.session_state[key]["menu"]["open"])
    DRAWN(key=key, data=data, height=height, **more)


def draw_pictures(name: str, sheets: list[dict[str, Any]]) -> None:
    """Offer pictures for a paper of what ``sheets`` describe, as files of that name."""
    about = {"widths": WIDTHS, "sheets": sheets, "name": name}
    PICTURES(
        key=f"pictures-{name}",
        data=about | {"font": f"static/media/{font_file().name}", "library": LIBRARY},
    )


def dark() -> bool:
    """Tell whether the reader's page is dark."""
    return bool(st.context.theme.type == "dark")


def ready(figure: Make, *, titled: bool = False, square: bool = False) -> Ready:
    """Return the first figure, as ``chart`` draws it.

    One that is a function with results and plain values as arguments is made once for all readers.
    """
    cache_key = _asked(figure)
    if cache_key is None:
        return _new(figure, titled, square)
    return _kept(cache_key, figure, titled, square)


def _new(figure: Make, titled: bool, square: bool) -> Ready:
    first = made(figure)[0]
    title = plain_title(first)
    if not titled:
        without_title(first)
    if square:
        set_height(first, THIRD)
    layout, size = first.layout, ""
    if layout.scene.aspectmode is not None:
        size = "player" if layout.sliders else "scene"
    elif square or is_square(first):
        size = "third" if layout.height <= THIRD else "whole"
    answer = next((argument for argument in _given(figure) if isinstance(argument, Result)), None)
    drawn = legible(first, why_empty(answer) if answer is not None else "")
    return Ready(drawn.to_json(), title, layout.height, size)


@cached(LRUCache(MAX_FIGURES), key=lambda *given: (given[0], *given[2:]), lock=threading.Lock())
def _kept(cache_key: Hashable, figure: Make, titled: bool, square: bool) -> Ready:
    return _new(figure, titled, square)


def _asked(figure: Make) -> Hashable:
    """Return what a figure depends on, results by their content; None if it is not known."""
    given = _given(figure)
    known = all(
        isinstance(argument, Result | str | int | float | tuple | None) for argument in given
    )
    if not isinstance(figure, partial) or not known:
        return None
    arguments = [
        argument.fingerprint if isinstance(argument, Result) else argument for argument in given
    ]
    return figure.func, dark(), *figure.keywords, *arguments


def _given(figure: Make) -> list[Any]:
    """Return what a figure is made of, as far as it is known."""
    return [*figure.args, *figure.keywords.values()] if isinstance(figure, partial) else []


def made(figure: Make) -> list[go.Figure]:
    """Return the figures of a card."""
    figures = figure() if figure is not None else []
    return [figures] if isinstance(figures, go.Figure) else list(figures)


def legible(figure: go.Figure, why: str = "") -> go.Figure:
    """Give a figure the page's font and theme, in place; an empty one says ``why`` it is."""
    say_if_empty(on_dark(figure) if dark() else figure, why)
    ink = {"color": INK[dark()]}
    layout: dict[str, Any] = {"legend": {"font": ink}, "template": _look(ink["color"])}
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        title = axis.title.text or ""
        text = broken(title) if axis.plotly_name.startswith("x") else title
        layout[axis.plotly_name] = {"title": {"text": text, "font": ink}, "tickfont": ink}
    figure.update_layout(layout)
    bar = {"tickfont": ink, "title": {"font": ink}}
    figure.update_traces({"colorbar": bar}, selector={"type": "heatmap"})
    figure.update_traces({"marker": {"colorbar": bar}}, selector={"marker.showscale": True})
    return figure


def _look(ink: str) -> go.layout.Template:
    """Return what the figures of a page share."""
    font, paper = {"family": FONT, "size": 12, "color": ink}, "#1a242c" if dark() else "#ffffff"
    axis = {"title": {"font": {"size": 14}}, "automargin": True, "zeroline": False}
    return go.layout.Template(
        layout={
            "font": font,
            "title": {"font": {"size": 15, "weight": 600}, "pad": {"l": 4}},
            "colorway": CATEGORICAL,
            "hoverlabel": {"bgcolor": paper, "bordercolor": "rgba(128,128,128,0.5)", "font": font},
            "legend": {"valign": "top", "font": {"size": 12}},
            "margin": {"pad": 8},
            "modebar": {"bgcolor": paper, "color": ink},
            "xaxis": axis | {"showgrid": False},
            "yaxis": axis,
        }
    )
