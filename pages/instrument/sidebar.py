"""The instrument beside every page: the model, all its heads, the query position, pins, the run."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, Final

import streamlit as st
from cachetools import LRUCache, cached

from pages import FIRST, NAMES, SECTIONS, module_of
from pages.instrument.model import choose_model
from pages.instrument.parts import draw_find, draw_grid, draw_position, draw_state, draw_told
from pages.instrument.run import choose_run
from pages.shared.cards.rest import note_far
from pages.shared.choices.choices import choose as choose_value
from pages.shared.choices.choices import chosen, fit
from pages.shared.choices.fit import fitted_index, list_of, nearest_of
from pages.shared.choices.told import among
from pages.shared.grid.measure_grid import all_heads
from pages.shared.grid.measures import chosen_measure, titles_for
from pages.shared.jobs import results
from pages.shared.run import current
from pages.shared.selection.head_choice import ranked
from pages.shared.selection.pins import compare_link, pin_button, pinned_cells
from pages.shared.selection.place import LOG_AXES, Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.claims import ATTENTION
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.previous_token.spec import PreviousToken, PreviousTokenParams
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.specs import DEFAULT_QUERY, RunSpec
from poskernel_core.models.catalog import Located
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.known import MEASURED, known_heads, telling_head

CHOICES: Final = "instrument"
"""The key of the part that reports the reader's choices in the browser."""

FOLLOWED: Final = "choices-followed"
GO: Final = "page-found"
"""The name of the page that the reader has found, until it is open."""

TAKEN: Final = {"cell": "head", "query": "query", "log": "log", "measure": "measure"}
"""The parameters of the address that such a choice sets."""
MANY: Final = 10**6
KEPT: Final = 256
"""Runs of which the keys of all numbers are kept."""


def choose(place: Place) -> Selection:
    """Draw the sidebar and return the selection.

    Raises:
        PageStopped: the model or corpus is not available.
    """
    with st.sidebar:
        located = choose_model(place)
        instruments = st.container()
        run, skip = choose_run(located)
        layer, head = _choose_cell(located)
        queries = list(
            (located.shown and located.shown.queries) or located.usual_positions(run.context)
        )
        usual = min(
            queries, key=lambda candidate: abs(candidate - min(DEFAULT_QUERY, run.context - 1))
        )
        query = nearest_of("query", queries, usual, located.title)
        selection = Selection(located, run, layer, head, query, skip)
        _tell_browser(selection, queries, list_of("log", LOG_AXES, LOG_AXES[:1]))
        with instruments:
            draw_find("find", _targets(selection))
            st.selectbox("Colour heads by", **fitted_index("measure", titles_for(located.geometry)))
            if place.title != module_of(FIRST).PLACE.title:
                draw_heads(selection)
            else:
                current().beside = st.container()
            draw_position("position", {"queries": queries})
            with st.container(horizontal=True, vertical_alignment="center", key="pin-row"):
                pin_button(selection, "pin-head")
                compare_link()
        st.markdown(":material/menu_book: [Tutorial](docs/tutorial.html) · [Documentation](docs/)")
    return selection


def draw_heads(selection: Selection, key: str = "grid-beside") -> None:
    """Draw all heads as a small grid, coloured by the chosen measure if it is stored."""
    layers = selection.located.geometry.n_layers
    height = 78 + layers * (max(6, min(20, 400 // layers)) + 1)
    with st.container(key=f"room-{key}", height=height, border=False):
        draw_grid(key, all_heads(selection, chosen_measure()))


def end_run(selection: Selection, page: str) -> None:
    """Tell the browser for what the figures of the page have been drawn; the last part of a run.

    The page may have computed the numbers that the browser draws since it was told where they are.
    The Map has the sidebar's grid large; while it waits for its measure, the small one is there.
    """
    beside = current().beside
    if beside is not None and "etc" not in dict(current().figures):
        with beside:
            draw_heads(selection)
    section = next(title for title, names in SECTIONS.items() if page in names)
    at = {"cell": selection.cell, "query": selection.query, "page": page, "section": section}
    draw_told("drawn", at | _blocks(selection.run, selection.skip, [selection.query]))


def _choose_cell(located: Located) -> tuple[int, int]:
    geometry = located.geometry
    cells = geometry.cells
    telling = telling_head(located.spec.name)
    default = telling if telling in cells else cells[0]
    offered, title = partial(among, cells), located.title
    cell = fit("head", default, itemgetter(-1), partial(_nearest, cells), offered, title)
    return parse_cell(cell, geometry.n_layers, geometry.n_heads)


def _nearest(cells: list[str], name: str) -> str:
    """Return the head of a name, or the nearest to it that the model has."""
    if name in cells:
        return name
    layer, head = parse_cell(name, MANY, MANY)
    places = [parse_cell(cell, MANY, MANY) for cell in cells]
    near = min(places, key=lambda place: (abs(place[0] - layer), abs(place[1] - head)))
    return head_name(*near)


def _tell_browser(selection: Selection, queries: list[int], log: list[str]) -> None:
    data = {
        "run": f"{selection.run.key()}-{selection.skip}",
        "rev": st.session_state.get(FOLLOWED, 0),
        "cell": selection.cell,
        "query": selection.query,
        "log": log,
        "pinned": pinned_cells(selection),
        **_blocks(selection.run, selection.skip, queries),
    }
    draw_state(CHOICES, data, on_choice_change=_follow)


def _follow() -> None:
    """Take over what the reader has chosen in the browser. A callback."""
    choice = st.session_state[CHOICES].choice
    if not choice or choice["rev"] == st.session_state.get(FOLLOWED):  # sent again by Back
        return
    st.session_state[FOLLOWED] = choice["rev"]
    note_far(far=bool(choice.get("far")))
    for name, key in TAKEN.items():
        if choice.get(name) not in (None, chosen(key)):
            choose_value(key, choice[name])
    st.session_state[GO] = choice.get("page")


def _blocks(run: RunSpec, skip: int, queries: list[int]) -> dict[str, Any]:
    """Return under which keys the numbers of all heads are stored, as far as they are."""
    keys, engine = _keys(run, skip, tuple(queries)), results.engine()
    there = {name: key for name, key in keys.items() if engine.store.has(key)}
    for query in [n for n in queries if str(n) not in there]:
        plan = results.plan(PositionalKernel, run, KernelParams(skip=skip, query=query))
        if (job := engine.running(plan)) is not None and job.formed:
            there[str(query)] = plan.of_stage(job.formed, query).key
    return {"profile": there.pop("profile", None), "blocks": there}


def _kept_under(run: RunSpec, skip: int, queries: tuple[int, ...]) -> tuple[Any, ...]:
    return run.key(), skip, *queries


@cached(LRUCache(KEPT), key=_kept_under, lock=threading.Lock())
def _keys(run: RunSpec, skip: int, queries: tuple[int, ...]) -> dict[str, str]:
    """Return the keys of the kernels by query position, and of the mean attention by offset."""
    analyses: dict[str, tuple[Any, Any]] = {
        str(query): (PositionalKernel, KernelParams(skip=skip, query=query)) for query in queries
    }
    analyses["profile"] = PreviousToken, PreviousTokenParams()
    keys = {}
    for name, (question, params) in analyses.items():
        with suppress(PosKernelError):
            keys[name] = results.plan(question, run, params).key
    return keys


FUNCTIONS: Final = {
    "previous-token": ("previous_mass", MEASURED["previous_token"]),
    "induction-scores": ("induction", MEASURED["induction"]),
}
"""Questions whose answers show what a head does: the value, and the words before it."""


def functions_of(run: RunSpec, geometry: Geometry) -> dict[str, str]:
    """Return what heads are known to do, by head name, the strongest first.

    It comes from the posts or from training, else from stored results of the run.
    """
    known = known_heads(run.model.name)
    for name, (value, words) in ({} if known else FUNCTIONS).items():
        if (result := results.known(name, run, geometry)) is not None:
            shares = result.values[value]
            much = [at for at in ranked(shares) if shares[at] >= ATTENTION]
            known |= {head_name(*at): f"{words} {shares[at]:.2f}" for at in much}
    return known


def _targets(selection: Selection) -> Mapping[str, Any]:
    """Return what the field of the sidebar finds: measures, functions, pages, and questions."""
    geometry = selection.located.geometry
    known = functions_of(selection.run, geometry).items()
    return {
        "heads": geometry.cells,
        "targets": [
            *(
                {"name": title, "kind": "measure", "measure": title, "page": FIRST}
                for title in titles_for(geometry)
            ),
            *({"name": what, "kind": f"head {cell}", "cell": cell} for cell, what in known),
            *(
                {"name": module_of(name).PLACE.title, "kind": "page", "page": name}
                for name in NAMES
            ),
            *(
                {"name": question.title, "also": question.name, "kind": place.title, "page": name}
                for name in NAMES
                for place in (module_of(name).PLACE,)
                for question in map(ANALYSES.__getitem__, place.questions)
            ),
        ],
    }
