"""PosKernel's front end: page configuration, navigation and the shared sidebar; nothing else."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import streamlit as st

from pages import FIRST, NAMES, SECTIONS, module_of, page_showing
from pages.instrument.lending import lacking
from pages.instrument.model import draw_note
from pages.instrument.sidebar import GO, choose, draw_heads, end_run
from pages.shared.cards.contents import fill_contents, title_here
from pages.shared.cards.embed import (
    CardDrawn,
    begin_embed,
    card_asked,
    embedded,
    in_place_of,
    missing_card,
    whole_page,
)
from pages.shared.cards.plain import plain, say_error
from pages.shared.cards.rest import note_far
from pages.shared.choices.choices import open_choices, open_page, waits, write_address
from pages.shared.choices.told import tell
from pages.shared.jobs.jobs import draw_forming
from pages.shared.jobs.results import PageStopped, engine, say_notice
from pages.shared.look.fold import fold
from pages.shared.run import begin
from pages.shared.selection.pins import keep_pins
from poskernel_core.analyses import ANALYSES
from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.settings import settings
from serving.metrics import RUN_SECONDS

LOOK = Path(__file__).parent / "pages" / "shared" / "look"
SHOW = "show"
"""The parameter of a link that names a question; the page that shows the question is opened."""
TITLE = "title"


def drawn_by(module: ModuleType) -> Callable[[], Any]:
    """Return a page as the navigation runs it."""

    def run() -> None:
        module.page(st.session_state["selection"])

    return run


def entitle(title: str) -> None:
    """Give the browser's tab its title, which it keeps while the next run begins."""
    st.session_state[TITLE] = title
    st.set_page_config(page_title=title)


def navigation() -> tuple[Any, str]:
    """Draw the navigation; return the page that is open, and its name."""
    offered = {
        name: st.Page(
            drawn_by(module), title=module.PLACE.title, url_path=name, default=name == FIRST
        )
        for name, module in zip(NAMES, map(module_of, NAMES), strict=True)
    }
    sections = {title: [offered[name] for name in names] for title, names in SECTIONS.items()}
    chosen = st.navigation(sections, position="top", expanded=True)
    if (question := st.query_params.get(SHOW)) in ANALYSES:
        link = {key: st.query_params.get_all(key) for key in st.query_params if key != SHOW}
        st.switch_page(offered[page_showing(question)], query_params=link)
    target = offered.get(st.session_state.pop(GO, None), chosen)
    if target.title != chosen.title:
        st.switch_page(target, query_params={})
    return chosen, next(name for name, page in offered.items() if page.title == chosen.title)


start = perf_counter()
st.set_page_config(
    page_title=st.session_state.get(TITLE, "PosKernel"),
    page_icon=str(LOOK / "icon.png"),
    layout="wide",
)
if Path(sys.argv[0]).resolve() == Path(__file__).resolve():
    st.error(
        "`app.py` alone lacks the addresses from which figures fetch their numbers: "
        "run `serve.py` instead, as `make app` does."
    )
    st.stop()
page, name = navigation()
place = module_of(name).PLACE
begin()
if open_choices(name):
    note_far(far=True)  # another page was open: this one is opened at its top
keep_pins(compared=name == "compare")
begin_embed()
told, notice = st.container(key="told"), st.container(key="notice")
contents = title_here(page.title, place.about, wanted=name != FIRST)
try:
    settings()
    chosen = choose(place)
    st.session_state["selection"] = chosen
    open_page()
    entitle(f"{place.title} · {chosen.cell} of {chosen.located.title} · PosKernel")
    draw_note(chosen.run.model.name)
    words = f"{plain(chosen.located.title)} · {chosen.cell} · n = {chosen.query}"
    if heads_above := fold(words, "above"):
        with heads_above:
            draw_heads(chosen, "grid-above")
    try:
        with suppress(CardDrawn):
            if not lacking(place, chosen.run.model.name):
                page.run()
            if why := missing_card():
                say_error(why)
            if embedded():  # also a card that is not there yet says what it is
                with in_place_of():
                    st.markdown(f":small[{plain(chosen.told())} · {whole_page(card_asked())}]")
    except InvalidField as error:  # the reader's choices are not valid parameters
        say_error(str(error))
    draw_forming(engine(), chosen.run.windows)
    fill_contents(contents)
    say_notice()
    with told:
        end_run(chosen, name)
except (PageStopped, BadRequest) as stopped:
    entitle(f"{place.title} · PosKernel")
    say_error(str(stopped))
    waits()
tell(write_address(alone=embedded()), notice)
RUN_SECONDS.labels(name).observe(perf_counter() - start)
