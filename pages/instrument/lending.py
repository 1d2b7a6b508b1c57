"""A page whose needs the model does not meet.

If the reader has chosen no model, the page shows a bundled one that has what it needs, and other
pages return to the first model. A model that the reader has chosen stays: the page says what is
missing, and one click shows the other. Where something is stored of the first model, a link that
names the model, or one click, shows that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from pages.shared.cards.plain import plain, say
from pages.shared.choices.choices import alike, choose, fit, wanted
from pages.shared.jobs import results
from pages.shared.selection.place import Place
from poskernel_core.common.errors import BadRequest
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located

STORED: Final = "stored"
"""The choice of what is stored of the first model, instead of another model."""


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
        _if_located(lambda located: not located.away),
        "has stored results only, and this page runs the model",
    ),
    "rotary": Need(
        "demo-rotary",
        _if_located(lambda located: located.geometry.scheme == "rotary"),
        "does not rotate its queries and keys, so its heads have no wavelengths",
    ),
    "learned": Need(
        "demo-gpt2",
        _if_located(lambda located: located.geometry.scheme == "learned"),
        "has no positional embeddings, and so no helix",
        always=False,
    ),
}


def model_wanted() -> str:
    """Return the model that the reader has chosen, or the first."""
    return str((wanted("model") or [""])[-1] or catalog.entries()[0].name)


def lent_on(place: Place) -> str | None:
    """Return the model that a page shows in place of the first, which it cannot show."""
    need, first = NEEDS.get(place.needs), catalog.entries()[0].name
    if need is None or need.met(first):
        return None
    if place.stored and wanted("model")[-1:] == [first]:  # a link names it
        choose(STORED, True)
    stored = place.stored and any(alike(str(value).lower(), True) for value in wanted(STORED))
    return None if stored else need.model


def lacking(place: Place, model: str) -> bool:
    """Say what a page needs and the model has not; tell whether the page can show nothing."""
    need, first = NEEDS.get(place.needs), catalog.entries()[0].name
    if need is None:
        return False
    if place.stored:
        fit(STORED, False, lambda texts: alike(texts[-1], True))  # so that the address keeps it
    if model == lent_on(place) and model_wanted() == first:
        title = catalog.title_here(first)
        message = f"{title} {need.why}, so this page shows {model}. Other pages return to {title}."
        st.info(plain(message), icon=":material/info:")  # a frame for one card has its own line
        if place.stored:
            _offer("Show what is stored of it", STORED, True)
        return False
    if need.met(model):
        return False
    below = " Below is what is stored of it." if place.stored else ""
    say(f"{catalog.title_here(model)} {need.why}.{below}")
    _offer(f"Show {need.model} instead", "model", need.model)
    return need.always and not place.stored


def _offer(label: str, key: str, value: Any) -> None:
    """Draw the button that shows something else."""
    icon = ":material/visibility:"
    st.button(label, key="lend", icon=icon, on_click=choose, args=(key, value))
