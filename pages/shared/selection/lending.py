"""If the chosen model lacks what a page needs, the page shows a bundled model and says so.

The reader's own model comes back, with its head, on every other page.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

from pages.shared.cards.plain import plain
from pages.shared.jobs import results
from pages.shared.selection.links import write
from pages.shared.selection.place import Place
from poskernel_core.common.errors import BadRequest
from poskernel_core.models import catalog

OWN, DRAWN, KEPT = "own-model", "model-drawn", "model-kept"


@dataclass(frozen=True)
class Need:
    """What a page may need of a model.

    Attributes:
        model: the bundled model that has it.
        met: tells whether a model has it; one that cannot be asked may.
        why: what a model without it is like.
        always: whether nothing at all can be shown of such a model; else only a reader who has
            chosen none is lent one, and may have the other all the same.
    """

    model: str
    met: Callable[[str], bool]
    why: str
    always: bool = True


def _is_away(name: str) -> bool:
    try:
        return bool(results.located(name, None).away)
    except BadRequest:
        return False


def _positions(scheme: str) -> Callable[[str], bool]:
    def met(name: str) -> bool:
        try:
            return results.located(name, None).geometry.scheme == scheme
        except BadRequest:
            return True

    return met


@dataclass(frozen=True)
class Lent:
    """The reader's own model and head, while a page shows another model."""

    own: str
    head: str | None
    page: str
    model: str


NEEDS: Final = {
    "training": Need(
        "demo-training",
        lambda name: results.has_checkpoints(name),
        "comes without checkpoints of its training",
    ),
    "weights": Need(
        "demo-gpt2",
        lambda name: not _is_away(name),
        "is here by its results alone, and on this page the model runs on what you choose",
    ),
    "rotary": Need(
        "demo-rotary",
        _positions("rotary"),
        "does not turn its queries and keys, so its heads have no wavelengths",
    ),
    "learned": Need(
        "demo-gpt2",
        _positions("learned"),
        "adds no positional embeddings to the stream, so there is no helix in them",
        always=False,
    ),
}


def lacks(place: Place, name: str) -> bool:
    """Tell whether a model has not what a page needs, so that another is lent."""
    need = NEEDS.get(place.needs)
    if need is None or need.met(name):
        return False
    chosen = name != catalog.entries()[0].name or st.session_state.get(KEPT) == place.title
    return need.always or not chosen


def lend_model(place: Place, asked: str) -> str:
    """Choose the model that a page needs, and after it the reader's own again, with its head."""
    state = st.session_state
    lent: Lent | None = state.pop(OWN, None)
    if lent and asked == lent.model and place.title == lent.page:
        state[OWN] = lent
    elif lent and asked == lent.model:
        _give_back(lent)
        return lend_model(place, lent.own)
    elif lacks(place, asked):
        model = NEEDS[place.needs].model
        state[OWN] = Lent(asked, state.get("head"), place.title, model)
        if DRAWN not in state:  # Streamlit writes what is chosen for a widget it has drawn
            st.query_params["model"] = model
        write("model", model)
    return str(state.get("model", asked))


def _give_back(lent: Lent) -> None:
    write("model", lent.own)
    if lent.head is not None:
        write("head", lent.head)


def say_lent(place: Place, shown: str) -> None:
    """Say that a page shows another model than the reader's, and why."""
    lent: Lent | None = st.session_state.get(OWN)
    if lent is None:
        return
    need, own = NEEDS[place.needs], lent.own
    st.info(
        plain(f"{own} {need.why}, so this page has chosen {shown}. Other pages go back to {own}."),
        icon=":material/info:",
    )
    if not need.always:
        st.button(
            f"Show {own} all the same",
            key="all-the-same",
            type="tertiary",
            on_click=_keep,
            args=(lent,),
        )


def _keep(lent: Lent) -> None:
    st.session_state[KEPT] = lent.page
    st.session_state.pop(OWN, None)
    _give_back(lent)
