"""If the chosen model lacks what a page needs, the page shows a bundled model and says so.

Every other page returns to the reader's own model and head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

from pages.shared.cards.plain import say
from pages.shared.jobs import results
from pages.shared.selection.links import write
from pages.shared.selection.place import Place
from poskernel_core.common.errors import BadRequest
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located

OWN, DRAWN, KEPT = "own-model", "model-drawn", "model-kept"


@dataclass(frozen=True)
class Need:
    """What a page may need of a model.

    Attributes:
        model: a bundled model that has it.
        met: tells whether a model has it, or may have it because it cannot be read.
        why: a predicate for models without it.
        always: whether the page can show nothing of a model without it. If not ``always``, such a
            model is replaced only if the reader has not chosen it, and the reader can show it
            anyway.
    """

    model: str
    met: Callable[[str], bool]
    why: str
    always: bool = True


def _if_located(test: Callable[[Located], bool]) -> Callable[[str], bool]:
    """Return a test of a model by its name; a model that cannot be read passes it."""

    def met(name: str) -> bool:
        try:
            return test(results.located(name, None))
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
        results.has_checkpoints,
        "has no checkpoints of its training",
    ),
    "weights": Need(
        "demo-gpt2",
        _if_located(lambda found: not found.away),
        "has stored results only, and this page runs the model",
    ),
    "rotary": Need(
        "demo-rotary",
        _if_located(lambda found: found.geometry.scheme == "rotary"),
        "does not rotate its queries and keys, so its heads have no wavelengths",
    ),
    "learned": Need(
        "demo-gpt2",
        _if_located(lambda found: found.geometry.scheme == "learned"),
        "has no positional embeddings, and so no helix",
        always=False,
    ),
}


def lacks(place: Place, name: str) -> bool:
    """Tell whether a model lacks what a page needs, so that another one replaces it."""
    need = NEEDS.get(place.needs)
    if need is None or need.met(name):
        return False
    chosen = name != catalog.entries()[0].name or st.session_state.get(KEPT) == place.title
    return need.always or not chosen


def lend_model(place: Place, asked: str) -> str:
    """Select the model that a page needs; on other pages the reader's own, with its head."""
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
        if DRAWN not in state:  # later, Streamlit itself writes the value of its widget
            st.query_params["model"] = model
        write("model", model)
    return str(state.get("model", asked))


def _give_back(lent: Lent) -> None:
    write("model", lent.own)
    if lent.head is not None:
        write("head", lent.head)


def say_lent(place: Place, shown: str) -> None:
    """Say why a page shows another model than the reader's."""
    lent: Lent | None = st.session_state.get(OWN)
    if lent is None:
        return
    need, own = NEEDS[place.needs], lent.own
    say(f"{own} {need.why}, so this page shows {shown}. Other pages return to {own}.")
    if not need.always:
        st.button(
            f"Show {own} anyway",
            key="all-the-same",
            type="tertiary",
            on_click=_keep,
            args=(lent,),
        )


def _keep(lent: Lent) -> None:
    st.session_state[KEPT] = lent.page
    st.session_state.pop(OWN, None)
    _give_back(lent)
