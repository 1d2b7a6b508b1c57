"""Which head a page shows: the selected one, with a button for a head that shows more."""

import numpy as np
import streamlit as st

from pages.shared.selection.head_link import head_link
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.common.heads import head_name
from poskernel_core.models.known import telling_head


def strongest(scores: np.ndarray) -> tuple[int, int]:
    """Return layer and head number of the largest of ``scores [layer, head]``."""
    layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
    return int(layer), int(head)


def choose_head(scores: np.ndarray, selection: Selection, what: str) -> None:
    """Say which head is shown, and offer the one with the largest of ``scores``."""
    best = head_name(*strongest(scores))
    if best == selection.cell:
        st.markdown(f"Shown below: **{head_link(best)}**, the strongest {what}.")
    else:
        _offer(selection, best, f"the strongest {what}")


def offer_head(selection: Selection, topic: str) -> None:
    """Offer the head that is known to show a topic best, unless it is selected."""
    model = selection.run.model.name
    best = telling_head(model, topic)
    if best not in (selection.cell, telling_head(model)):
        _offer(selection, best, "which shows more here")


def _offer(selection: Selection, cell: str, why: str) -> None:
    """Say which head is shown, with a button that selects another."""
    row = st.container(horizontal=True, vertical_alignment="center", key="head-shown")
    row.markdown(
        f"Shown below: **{head_link(selection.cell)}**, the selected head.", width="content"
    )
    row.button(
        f"Select {cell}, {why}",
        icon=":material/visibility:",
        on_click=select_head,
        args=(cell,),
        key="select-offered",
    )
