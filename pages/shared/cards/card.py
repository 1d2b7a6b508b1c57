"""A figure with its title and finding, and a menu with all that belongs to it."""

import html
import re
import threading
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import plotly.graph_objects as go
import streamlit as st
from cachetools import LRUCache, cached

from pages.shared.cards.contents import mention
from pages.shared.cards.plain import plain
from poskernel_core.analyses.definitions import errors_of
from poskernel_core.analyses.findings import finding_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.export.files import (
    bibtex,
    chart_config,
    citation,
    file_stem,
    to_csv,
    to_html,
    to_json,
    to_npz,
)
from poskernel_core.export.grid_picture import grid_picture
from poskernel_core.export.pictures import Picture
from poskernel_core.models.gguf import quantisation_note
from poskernel_core.plotting.layout import THIRD, broken, is_square, without_title

Make: TypeAlias = "Callable[[], go.Figure | Sequence[go.Figure]] | None"
"""Makes the figures of a card; None for a grid of heads or a table."""
MENU: Final = "About this figure"
TABS: Final = ("Reading", "Formula", "Provenance", "Link", "Citation", "Download")
MAX_FIGURES = 256
"""Figures in the cache, of about a hundred kilobytes each."""

TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Explanation:
    """How to read a figure, and its formula and source."""

    reading: str
    formula: str


@dataclass(frozen=True)
class _Shown:
    """The card that is being drawn: its result, its title, and the grids of heads in it."""

    result: Result
    title: str
    grids: list[Callable[[], dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class _Ready:
    """A figure as a card draws it, and its former title."""

    figure: go.Figure
    title: str


_OPEN: ContextVar[_Shown | None] = ContextVar("open card", default=None)


def card(
    name: str,
    figure: Make,
    result: Result,
    words: Explanation,
    title: str = "",
    draw: Callable[[], None] | None = None,
) -> None:
    """Draw one figure with everything around it.

    ``name`` is unique on the page and names the files. The default title is the figure's. ``draw``
    draws anything but a single Plotly figure; ``figure`` is then made for the download only.
    """
    with st.container(border=True, key=f"card-{name}"):
        head = st.container(
            horizontal=True, vertical_alignment="center", gap=None, key=f"head-{name}"
        )
        said = st.container(key=f"finding-{name}")
        made = None
        if draw is None:
            made = ready(figure)
        title = title or (made.title if made else "") or name
        shown = _Shown(result, title)
        token = _OPEN.set(shown)
        try:
            if draw is not None:
                draw()
            elif made is not None:
                image = st.session_state.get(f"image-{name}", "svg")
                chart(name, made.figure, image, legible=True)
        finally:
            _OPEN.reset(token)
    mention(name, title)
    with head:
        st.subheader(plain(title), anchor=name)
        with st.container(width="content"):
            st.fragment(_menu)(name, figure, shown, words, camera=made is not None)
    if finding := finding_of(result):
        said.markdown(plain(finding))


def _menu(name: str, figure: Make, shown: _Shown, words: Explanation, *, camera: bool) -> None:
    """Draw the menu of a card; what is in it is made when it is opened."""
    menu = st.popover(
        MENU,
        icon=":material/more_horiz:",
        type="tertiary",
        width="content",
        help=MENU,
        on_change="rerun",
        key=f"menu-{name}",
    )
    if not menu.open:
        return
    result, tabs = shown.result, dict(zip(TABS, menu.tabs(TABS), strict=True))
    with tabs["Reading"]:
        st.markdown(words.reading)
        if told := errors_of(result):
            st.caption(told)
    with tabs["Formula"]:
        st.markdown(words.formula)
    with tabs["Provenance"]:
        st.markdown(provenance_line(result))
        st.json(result.as_json()["run"], expanded=False)
    with tabs["Link"]:
        st.caption("The address of this figure, with the present selection:")
        st.code(_address(name), language=None, wrap_lines=True)
    with tabs["Citation"]:
        st.code(citation(result, shown.title), language=None, wrap_lines=True)
        st.code(bibtex(result, shown.title), language="latex", wrap_lines=True)
    with tabs["Download"]:
        _downloads(name, figure, shown)
        if camera:
            st.segmented_control(
                "The camera above the figure saves",
                ["svg", "png"],
                default="svg",
                required=True,
                key=f"image-{name}",
            )


def chart(
    name: str,
    figure: go.Figure,
    image: str = "svg",
    *,
    square: bool = False,
    pick: Callable[[], None] | None = None,
    legible: bool = False,
) -> None:
    """Draw one Plotly figure in the page's colours; its camera saves a file of that name.

    A ``square`` map, or a map with square cells, is as high as its column is wide. ``pick`` is
    called when points are chosen by a click, a box or a loop. A ``legible`` figure already has the
    page's colours.
    """
    shown = _OPEN.get()
    file = name if shown is None else file_stem(shown.result, name)
    key, config = f"figure-{name}", chart_config(file, image)
    if not legible:
        figure = _legible(figure)
    if pick is not None:
        st.plotly_chart(figure, key=key, config=config, on_select=pick)
        return
    scene = figure.layout.scene.aspectmode is not None
    if not (square or scene or is_square(figure)):
        st.plotly_chart(figure, key=key, config=config)
        return
    if scene:
        size = "player" if figure.layout.sliders else "scene"
    else:
        size = "third" if figure.layout.height <= THIRD else "whole"
    with st.container(key=f"square-{size}-{name}"):  # style.css gives it its height
        st.plotly_chart(figure, height="stretch", key=key, config=config)


def charts(figures: dict[str, go.Figure], *, square: bool = False) -> None:
    """Draw figures side by side."""
    for column, (name, figure) in zip(st.columns(len(figures)), figures.items(), strict=True):
        with column:
            chart(name, figure, square=square)


def keep_grid(make: Callable[[], dict[str, Any]]) -> None:
    """Add a grid of heads, made when it is asked for, to the downloads of the open card."""
    shown = _OPEN.get()
    if shown is not None:
        shown.grids.append(make)


def dark() -> bool:
    """Tell whether the reader's page is dark."""
    return bool(st.context.theme.type == "dark")


def ready(figure: Make) -> _Ready:
    """Return a figure without its title, in the colours of the page.

    One that is a function with results and plain values as arguments is made once for all readers.
    """
    asked = _asked(figure)
    return _new(figure) if asked is None else _kept(asked, figure)


def _new(figure: Make) -> _Ready:
    made = _made(figure)[0]
    title = _title_of(made)
    return _Ready(_legible(without_title(made)), title)


@cached(LRUCache(MAX_FIGURES), key=lambda asked, figure: asked, lock=threading.Lock())
def _kept(asked: Hashable, figure: Make) -> _Ready:
    return _new(figure)


def _asked(figure: Make) -> Hashable:
    """Return what a figure depends on, results by their content; None if it is not known."""
    if not isinstance(figure, partial):
        return None
    given = [*figure.args, *figure.keywords.values()]
    if not all(isinstance(each, Result | str | int | float | tuple | None) for each in given):
        return None
    told = [each.fingerprint if isinstance(each, Result) else each for each in given]
    return figure.func, dark(), *figure.keywords, *told


def _made(figure: Make) -> list[go.Figure]:
    made = figure() if figure is not None else []
    return [made] if isinstance(made, go.Figure) else list(made)


def _title_of(figure: go.Figure) -> str:
    """Return a figure's own title as plain text."""
    text = figure.layout.title.text
    return html.unescape(TAG.sub(" ", text or "")).strip()


def _legible(figure: go.Figure) -> go.Figure:
    """Give axis titles, ticks and legend a colour that fits the page's theme, in place."""
    ink = {"color": "#c9d3da" if dark() else "#3b4650"}
    layout: dict[str, Any] = {"legend": {"font": ink}}
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        title = axis.title.text or ""
        text = broken(title) if axis.plotly_name.startswith("x") else title
        layout[axis.plotly_name] = {"title": {"text": text, "font": ink}, "tickfont": ink}
    figure.update_layout(layout)
    bar = {"tickfont": ink, "title": {"font": ink}}
    figure.update_traces({"colorbar": bar}, selector={"type": "heatmap"})
    figure.update_traces({"marker": {"colorbar": bar}}, selector={"marker.showscale": True})
    return figure


def provenance_line(result: Result) -> str:
    """Return a result's provenance as a sentence."""
    run = result.provenance
    skip = result.params.get("skip")
    revision = run["revision"] or "main"
    error = run["dtype_error"]
    precision = run["dtype"] + (f" (relative error {error:.1e})" if error else "")
    return (
        f"**{plain(run['model'])}**, revision {plain(revision)}, "
        f"fingerprint `{run['model_fingerprint'][:12]}`. Corpus **{plain(run['corpus'])}**: "
        f"{counted(run['windows'], 'window')} of {counted(run['context'], 'token')}, "
        f"start token {'first' if run['start_token'] else 'absent'}, seed {run['seed']}. "
        + ("" if skip is None else f"First {counted(skip, 'key')} skipped. ")
        + f"{precision} on {run['device']}, {run['date']}."
        + (f" {told}." if (told := quantisation_note(run.get("quantisation", ""))) else "")
    )


def _address(name: str) -> str:
    """Return the address of the page as it is now, with a card as anchor."""
    query = urlencode(st.query_params.to_dict())
    return f"{st.context.url}{'?' if query else ''}{query}#{name}"


def _downloads(name: str, figure: Make, shown: _Shown) -> None:
    result = shown.result
    stem = file_stem(result, name)

    def picture() -> Picture:
        return grid_picture(shown.grids[0](), f"{stem}: {shown.title}")

    def page() -> str:
        figures = [picture().svg()] if shown.grids else _made(figure)
        return to_html(figures, result, name, title=shown.title, dark=False)

    kinds: list[tuple[str, str, Callable[[], str | bytes]]] = [
        ("CSV", "csv", lambda: to_csv(result)),
        ("NPZ", "npz", lambda: to_npz(result)),
        ("JSON", "json", lambda: to_json(result)),
        ("HTML (stand-alone figure)", "html", page),
    ]
    if shown.grids:
        kinds += [("SVG", "svg", lambda: picture().svg()), ("PNG", "png", lambda: picture().png())]
    for label, suffix, make in kinds:
        st.download_button(
            label,
            make,
            f"{stem}.{suffix}",
            on_click="ignore",
            key=f"{suffix}-{name}",
            width="stretch",
        )
