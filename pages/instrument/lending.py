"""A page whose needs the model does not meet.

If the reader has chosen no model, the page shows a bundled one that has what it needs, and other
pages return to the first model. A model that the reader has chosen stays: the page says what is
missing, and one click shows the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

from pages.shared.cards.plain import plain, say
from pages.shared.jobs import results
from pages.shared.selection.links import write
from pages.shared.selection.place import Place
from poskernel_core.common.errors import BadRequest
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located

LENT: Final = "lent-model"


@dataclass(frozen=True)
class Need:
    """What a page may need of a model.

    Attributes:
        model: a bundled model that has it.
        met: tells whether a model has it, or may have it because it cannot be read.
        why: a predicate for models without it.
        always: whether the page can show nothing of a model without it.
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


def lend_model(place: Place) -> str:
    """Return the model to show; where the reader has chosen none, one that the page can show."""
    state, first = st.session_state, catalog.entries()[0].name
    asked = str(state.get("model") or st.query_params.get("model") or first)
    lent = state.pop(LENT, None)
    if asked not in (first, lent):
        return asked
    wanted = NEEDS[place.needs].model if lent_here(place, first) else first
    if wanted != first:
        state[LENT] = wanted
    if wanted != asked:
        if "model" not in state:  # later, Streamlit itself writes the value of its widget
            st.query_params["model"] = wanted
        write("model", wanted)
    return wanted


def lent_here(place: Place, name: str) -> bool:
    """Tell whether a page shows another model than the one that nobody has chosen."""
    need = NEEDS.get(place.needs)
    return need is not None and name == catalog.entries()[0].name and not need.met(name)


def lacking(place: Place, model: str) -> bool:
    """Say what a page needs and the model has not; tell whether the page can show nothing."""
    need, first = NEEDS.get(place.needs), catalog.entries()[0].name
    if need is None:
        return False
    if st.session_state.get(LENT) == model:
        title = catalog.title_here(first)
        told = f"{title} {need.why}, so this page shows {model}. Other pages return to {title}."
        st.info(plain(told), icon=":material/info:")  # a frame for one card has its own line
        return False
    if need.met(model):
        return False
    say(f"{catalog.title_here(model)} {need.why}.")
    st.button(
        f"Show {need.model} instead",
        key="lend",
        icon=":material/visibility:",
        on_click=write,
        args=("model", need.model),
    )
    return need.always
