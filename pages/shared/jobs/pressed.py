"""Results that are computed only when a reader presses a button."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import streamlit as st

from pages.shared.cards.embed import in_place_of
from pages.shared.choices.choices import address
from pages.shared.jobs import results
from poskernel_core.analyses.base import P, Question
from poskernel_core.common.result import Result
from poskernel_core.common.specs import RunSpec
from poskernel_core.engine.admission import computes
from poskernel_core.models.curated import BUNDLED_MODELS

WANTED: Final = "wanted-results"
NOTHING_NEW: Final = "This server shows what was computed before and computes nothing new."


def fetch_when_asked(
    question: type[Question[P]], run: RunSpec, params: P, key: str, *cards: str, left: str = ""
) -> Result | None:
    """Return a result if it is stored or has been asked for; otherwise draw a button that asks.

    It has been asked for if it is being computed, by whoever wants it. Where nothing new can be
    computed there is no such button. ``key`` is unique on the page: "compute-"
    and the name of the card that shows the result, if no other ``cards`` do. ``left`` says what is
    missing, where another result shows the rest.
    """
    with results.refusals_shown(question):
        asked, left = results.plan(question, run, params), left or question.noun_phrase
        job = results.engine().running(asked)
        computed = job is not None and not job.ended
        if results.engine().ready(asked) or computed or is_wanted(asked.key):
            return results.fetch(question, run, params)
        with in_place_of(*(cards or [key.removeprefix("compute-")])):
            if why := nothing_new():
                st.caption(f"Not computed: {left}. {why}")
            else:
                st.caption(f"Not computed yet: {left}. The model has to run for it.")
                compute_button("Compute it", key, want, asked.key)
    return None


def nothing_new() -> str:
    """Return why nothing can be computed of the model, and what to do, in Markdown; else empty."""
    if not computes():
        return NOTHING_NEW
    selection, other = st.session_state.get("selection"), next(iter(BUNDLED_MODELS))
    if selection is None or not (away := selection.located.away):
        return ""
    kept = {key: value for key, value in address().items() if key not in ("head", "query")}
    link = f"[{other}](?{urlencode(kept | {'model': other}, doseq=True)})"
    return f"Only its results are here. To compute more, {away}. {link} computes here."


def compute_button(
    label: str, key: str, on_click: Callable[..., None], *asked: Any, help: str | None = None
) -> None:
    """Draw a button that starts a computation: ``on_click`` notes what is ``asked``."""
    icon = ":material/play_arrow:"
    st.button(label, key=key, icon=icon, on_click=on_click, args=asked, help=help)


def is_wanted(key: str) -> bool:
    """Tell whether this reader has asked for a computation."""
    return key in st.session_state.get(WANTED, ())


def want(*keys: str) -> None:
    """Note that this reader asks for computations. A callback."""
    st.session_state[WANTED] = {*st.session_state.get(WANTED, ()), *keys}


def offer_rest(told: str, label: str, key: str, button: str) -> None:
    """Say what is not computed yet, with a button that asks for it under ``key``.

    Where nothing new can be computed there is no such button. ``told`` is Markdown; ``button`` is
    the button's widget key.
    """
    row = st.container(horizontal=True, vertical_alignment="center", key=f"rest-{button}")
    row.markdown(f":small[{told}]", width="content")
    if why := nothing_new():
        row.markdown(f":small[{why}]")
        return
    with row:
        compute_button(label, button, want, key, help="the model runs again: it may take minutes")
