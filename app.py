"""PosKernel's front end: page configuration, navigation and the shared sidebar; nothing else."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import streamlit as st

from pages.shared.contents import fill_contents, no_contents
from pages.shared.echo import note_drawn
from pages.shared.fragment import draw_note
from pages.shared.lending import say_lent
from pages.shared.links import read_link, tell
from pages.shared.pins import keep_pins
from pages.shared.plain import nothing_said, say_error
from pages.shared.results import PageStopped, say_notice
from pages.shared.selection import choose
from pages.shared.style import apply_style
from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.settings import settings
from serving.metrics import RUN_SECONDS

PAGES_FOLDER = Path(__file__).parent / "pages"
PAGES = {
    folder.name: import_module(f"pages.{folder.name}.page")
    for folder in PAGES_FOLDER.iterdir()
    if (folder / "page.py").is_file()
}


def drawn_by(module: ModuleType) -> Callable[[], Any]:
    """Return a page as the navigation runs it."""

    def run() -> None:
        module.page(st.session_state["selection"])

    return run


def navigation() -> tuple[Any, ModuleType]:
    """Draw the navigation; return the page that is open, and its module."""
    sections: dict[str, list[Any]] = {}
    modules = {}
    for name, module in sorted(PAGES.items(), key=lambda each: each[1].PLACE.order):
        place = module.PLACE
        page = st.Page(drawn_by(module), title=place.title, url_path=name, default=place.order == 0)
        sections.setdefault(place.section, []).append(page)
        modules[place.title] = module
    chosen = st.navigation(sections, expanded=True)
    return chosen, modules[chosen.title]


start = perf_counter()
st.set_page_config(
    page_title="PosKernel", page_icon=str(PAGES_FOLDER / "shared" / "icon.png"), layout="wide"
)
page, module = navigation()
apply_style()
no_contents()
nothing_said()
read_link(page.title)
keep_pins(compared=module is PAGES["compare"])
notice = st.container()
try:
    settings()
    st.session_state["selection"] = chosen = choose(module.PLACE)
    draw_note(chosen.run.model.name)
    say_lent(module.PLACE, chosen.run.model.name)
    try:
        page.run()
    except InvalidField as error:  # what was chosen makes no parameters
        say_error(str(error))
    fill_contents()
    say_notice()
    note_drawn()
except (PageStopped, BadRequest) as stopped:
    st.title(page.title)
    say_error(str(stopped))
tell(notice)
RUN_SECONDS.labels(module.__name__.split(".")[1]).observe(perf_counter() - start)
