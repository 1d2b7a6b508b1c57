"""A figure with its title and finding, and a menu with all that belongs to it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import streamlit as st

from pages.shared.cards import embed
from pages.shared.cards.explained import Explanation, page_on
from pages.shared.cards.figure import (
    Head,
    Make,
    Ready,
    draw_head,
    draw_pictures,
    draw_ready,
    made,
    ready,
)
from pages.shared.cards.plain import plain
from pages.shared.choices.choices import address
from pages.shared.grid.measures import MEASURES
from pages.shared.jobs.pressed import nothing_new
from pages.shared.run import Open, current
from pages.shared.selection.head_link import page_address
from poskernel_core.analyses.definitions import errors_of
from poskernel_core.analyses.views import finding_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.export.continuation import continuation
from poskernel_core.export.files import (
    bibtex,
    citation,
    file_stem,
    signature,
    to_csv,
    to_html,
    to_json,
    to_npz,
    typed_start,
)
from poskernel_core.export.printing import WIDTHS, is_table, printed
from poskernel_core.models.gguf import quantisation_note
from poskernel_core.plotting.grid_map import grid_map

OPENED: Final = "opened-menu"
"""The card whose menu is open, and what was selected when it was opened."""
FIGURE, AROUND = 460, 240
"""The usual height of a figure, and of what stands around it in a card, pixels."""

CONTINUE: Final = "Continue in TransformerLens"
DECIDING: Final = "deciding"
"""The choice of a link that opens *How many texts are enough?* on the Map."""
TABS: Final = ("Reading", "Formula", "Provenance", "Link", "Citation", "Download", CONTINUE)


def card(
    name: str,
    figure: Make,
    result: Result,
    words: Explanation,
    title: str = "",
    draw: Callable[[], None] | None = None,
    also: str = "",
) -> None:
    """Draw one figure with everything around it.

    ``name`` is unique on the page and names the files. The default title is the figure's. ``draw``
    draws anything but a single Plotly figure; ``figure`` is then made for the download only.
    ``also`` follows the finding.

    Raises:
        CardDrawn: the address asks for this card alone.
    """
    place = embed.place_of(name)
    if place is None:
        return
    with place, st.container(border=True, key=f"card-{name}"):
        first = ready(figure) if draw is None else None
        title = title or (first.title if first else "") or name
        open_card = Open(result, title, first.height if first else FIGURE)
        findings, sentence = current().findings, finding_of(result)
        finding = (sentence * (sentence not in findings) + also).strip()
        findings.add(sentence)
        if draw is None:
            st.fragment(_head)(name, figure, open_card, words, finding, first)
        else:
            place, later = st.container(gap=None), st.session_state.get(OPENED) == _opened(name)
            draw_head_of = partial(st.fragment(_head), name, figure, open_card, words, finding)
            if not later:  # it would move what is inside
                with place:
                    draw_head_of()
            _draw_inside(open_card, draw)
            if later:  # its menu has what is drawn
                with place:
                    draw_head_of()
        if embed.embedded():
            st.markdown(f":small[{plain(signature(result))} · {embed.whole_page(name)}]")
    current().figures.append((name, title))
    if embed.embedded():
        raise embed.CardDrawn


def _draw_inside(open_card: Open, draw: Callable[[], None]) -> None:
    current().card = open_card
    try:
        draw()
    finally:
        current().card = None


def _opened(name: str) -> tuple[str, Any]:
    """Return what is kept of a card while its menu is open."""
    return name, st.session_state.get("selection")


def _head(
    name: str,
    figure: Make,
    open_card: Open,
    words: Explanation,
    finding: str,
    first: Ready | None = None,
) -> None:
    """Draw the head of a card, the figure that follows it at once, and its menu while it is open.

    The menu stays open for as long as the selection is the same: results that form draw the page
    anew.
    """
    here = _opened(name)

    def note(is_open: bool) -> None:
        if is_open:
            st.session_state[OPENED] = here
        elif st.session_state.get(OPENED) == here:
            del st.session_state[OPENED]

    head = Head(name, open_card.title, finding, note)
    if first is not None:
        draw_ready(name, first, head=head)
    else:
        draw_head(name, head)
    if st.session_state.get(OPENED) == here:
        with st.container(border=True, key=f"menu-{name}"):
            _menu(name, figure, open_card, words)


def _menu(name: str, figure: Make, open_card: Open, words: Explanation) -> None:
    result, tabs = open_card.result, dict(zip(TABS, st.tabs(TABS), strict=True))
    with tabs["Reading"]:
        st.markdown(words.reading)
        if error_text := errors_of(result):
            st.caption(error_text)
        if links := deciding_links(result):
            st.markdown(f":small[Which texts decide it, and how many are enough: {links}]")
    with tabs["Formula"]:
        st.markdown(words.formula)
        if page := page_on(result.analysis):
            st.markdown(f"[More in the documentation]({page})")
    with tabs["Provenance"]:
        st.markdown(provenance_line(result))
        st.json(result.as_json()["run"], expanded=False)
    with tabs["Link"]:
        st.caption("The address of this figure, with the present selection:")
        st.code(_address(name), language=None, wrap_lines=True)
        st.caption("To show this figure alone in a page of yours:")
        about = f"{open_card.title}: {signature(result)}"
        alone = _address(embed=f"{embed.PREFIX}{name}")
        code = embed.frame_code(alone, about, open_card.height + AROUND)
        st.code(code, language=None, wrap_lines=True)
    with tabs["Citation"]:
        st.code(citation(result, open_card.title), language=None, wrap_lines=True)
        st.code(bibtex(result, open_card.title), language="latex", wrap_lines=True)
    with tabs["Download"]:
        _downloads(name, figure, open_card)
    with tabs[CONTINUE]:
        st.caption("The same model, texts and number by its hooks, and a next step, as Python:")
        selection = st.session_state["selection"]
        code = continuation(result, selection.cell, selection.query)
        st.code(code, language="python", height=FIGURE)


def deciding_links(result: Result) -> str:
    """Return links, in Markdown, to which texts decide the selected head's numbers of an answer.

    Empty if none has errors over groups of texts, if those of the run are not kept by groups, or if
    nothing can be computed of the model.
    """
    selection = st.session_state["selection"]
    if nothing_new(selection.located):
        return ""
    titles = (
        title
        for title, measure in MEASURES.items()
        if measure.question.name == result.analysis
        and measure.declared.value in result.values
        and measure.of_texts(selection)
    )
    asked = {DECIDING: "true"}
    return " · ".join(
        f"[{title}]({page_address('etc_heatmap', measure=title, **asked)}#texts-groups)"
        for title in titles
    )


def keep_grid(make: Callable[[], dict[str, Any]]) -> None:
    """Add a grid of heads, made when it is asked for, to the downloads of the open card."""
    open_card = current().card
    if open_card is not None:
        open_card.grids.append(make)


def provenance_line(result: Result) -> str:
    """Return a result's provenance as a sentence."""
    run = result.provenance
    skip = result.params.get("skip")
    revision = run["revision"] or "main"
    error = run["dtype_error"]
    precision = run["dtype"] + (f" (relative error {error:.1e})" if error else "")
    return (
        f"**{plain(result.model_title)}**, revision {plain(revision)}, "
        f"fingerprint `{run['model_fingerprint'][:12]}`. Corpus **{plain(run['corpus'])}**: "
        f"{counted(run['windows'], 'window')} of {counted(run['context'], 'token')}, "
        f"start token {typed_start(result) or ('first' if run['start_token'] else 'absent')}, "
        f"seed {run['seed']}. "
        + ("" if skip is None else f"First {counted(skip, 'key')} skipped. ")
        + f"{precision} on {run['device']}, {run['date']}."
        + (
            f" {quantisation}."
            if (quantisation := quantisation_note(run.get("quantisation", "")))
            else ""
        )
    )


def _address(card: str = "", **more: str) -> str:
    """Return the address of the page as it is now, with a card as anchor."""
    selection = st.session_state["selection"]
    selected = {"model": selection.run.model.name, "head": selection.cell}
    query = urlencode(selected | address() | more, doseq=True, safe=":")
    return f"{st.context.url}{'?' if query else ''}{query}{'#' if card else ''}{card}"


def _downloads(name: str, figure: Make, open_card: Open) -> None:
    result = open_card.result
    stem, selection = file_stem(result, name), st.session_state["selection"]

    def page() -> str:
        code = continuation(result, selection.cell, selection.query)
        figures = _figures(figure, open_card, selection.cell)
        return to_html(figures, result, name, title=open_card.title, code=code)

    kinds: list[tuple[str, str, Callable[[], str | bytes]]] = [
        ('CSV (pandas reads it with comment="#")', "csv", lambda: to_csv(result)),
        ("NPZ", "npz", lambda: to_npz(result)),
        ("JSON", "json", lambda: to_json(result)),
        ("HTML (stand-alone figure)", "html", page),
    ]
    for label, suffix, make in kinds:
        st.download_button(
            label,
            make,
            f"{stem}.{suffix}",
            on_click="ignore",
            key=f"{suffix}-{name}",
            width="stretch",
        )
    sheets = [sheet for width in WIDTHS for sheet in sheets_of(figure, open_card, width)]
    if sheets:
        st.caption("Pictures for a paper, as wide as one or two columns:")
        draw_pictures(stem, sheets)


def sheets_of(figure: Make, open_card: Open, width: int) -> list[dict[str, Any]]:
    """Return the pictures of a card, in a width in millimetres."""
    figures = [picture for picture in _figures(figure, open_card) if not is_table(picture)]
    title = open_card.title if len(figures) == 1 else ""
    return [printed(picture, open_card.result, width, title) for picture in figures]


def _figures(figure: Make, open_card: Open, selected: str = "") -> list[Any]:
    """Return a card's grid with a selected head, or its figures."""
    return [grid_map(make(), selected) for make in open_card.grids[:1]] or made(figure)
