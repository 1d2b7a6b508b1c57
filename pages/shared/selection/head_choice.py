"""Another head that shows more on a page: one line, with a click that selects it."""

import numpy as np
import streamlit as st

from pages.shared.selection.selection import Selection, select_head
from poskernel_core.common.heads import head_name
from poskernel_core.models.known import telling_head


def ranked(scores: np.ndarray) -> list[tuple[int, int]]:
    """Return layers and heads by ``scores [layer, head]``, the largest first, without NaN."""
    order = np.argsort(-scores, axis=None, kind="stable")
    places = np.stack(np.unravel_index(order, scores.shape), axis=1).tolist()
    return [(layer, head) for layer, head in places if np.isfinite(scores[layer, head])]


def offer_strongest(scores: np.ndarray, selection: Selection, what: str) -> None:
    """Say which head has the largest of ``scores``, with a click that selects it."""
    _offer(selection, head_name(*ranked(scores)[0]), f"the strongest {what} of this model")


def offer_head(selection: Selection, topic: str) -> None:
    """Say which head is known to show a topic, with a click that selects it."""
    model = selection.run.model.name
    best = telling_head(model, topic)
    if best != telling_head(model):
        _offer(selection, best, "a head of this model that shows more here")


def _offer(selection: Selection, cell: str, what: str) -> None:
    if cell == selection.cell:
        st.markdown(f":small[{cell} is {what}.]")
        return
    st.button(
        f"{cell} is {what}",
        icon=":material/visibility:",
        type="tertiary",
        help=f"Select {cell}",
        on_click=select_head,
        args=(cell,),
        key="select-offered",
    )
