"""Which head an experiment is shown for: the strongest of its kind, or the one selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import streamlit as st

from pages.parts.selection import Selection, select_cell
from poskernel_core.config import cell_name

__all__ = ["HeadChoice", "choose_head", "pick_head", "strongest"]

URL: Final = "query-params"
SHOWN = ("the strongest", "the selected")


@dataclass(frozen=True)
class HeadChoice:
    """A head, by layer and number."""

    layer: int
    head: int

    @property
    def cell(self) -> str:
        """Its name, such as ``L0H3``."""
        return cell_name(self.layer, self.head)


def pick_head(cell: str) -> None:
    """Select a head everywhere, and show it here; call it in a callback."""
    select_cell(cell)
    st.session_state["shown"] = SHOWN[1]


def strongest(scores: np.ndarray) -> HeadChoice:
    """Return the head with the largest of ``scores [layer, head]``."""
    layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
    return HeadChoice(int(layer), int(head))


def choose_head(scores: np.ndarray, selection: Selection, what: str) -> HeadChoice:
    """Draw the choice between the head with the largest of ``scores`` and the selected one."""
    best = strongest(scores)
    chosen = st.segmented_control(
        f"Head shown: {best.cell} is the strongest {what}, {selection.cell} is selected",
        SHOWN, key="shown", bind=URL, default=SHOWN[0], required=True,
    )  # fmt: skip
    return best if chosen == SHOWN[0] else HeadChoice(selection.layer, selection.head)
