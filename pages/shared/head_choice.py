"""Which head an experiment is shown for: the one selected, with a way to the strongest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from pages.shared.head_link import head_link
from pages.shared.selection import Selection, select_cell
from poskernel_core.common.heads import cell_name

__all__ = ["HeadChoice", "choose_head", "strongest"]


@dataclass(frozen=True)
class HeadChoice:
    """A head, by layer and number."""

    layer: int
    head: int

    @property
    def cell(self) -> str:
        """Its name, such as ``L0H3``."""
        return cell_name(self.layer, self.head)


def strongest(scores: np.ndarray) -> HeadChoice:
    """Return the head with the largest of ``scores [layer, head]``."""
    layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
    return HeadChoice(int(layer), int(head))


def choose_head(scores: np.ndarray, selection: Selection, what: str) -> HeadChoice:
    """Say which head is shown, and offer the one with the largest of ``scores``."""
    best = strongest(scores)
    row = st.container(horizontal=True, vertical_alignment="center", key="head-shown")
    if best.cell == selection.cell:
        row.markdown(f"Shown below: **{head_link(best.cell)}**, the strongest {what}.")
    else:
        row.markdown(
            f"Shown below: **{head_link(selection.cell)}**, the selected head.", width="content"
        )
        row.button(
            f"Select {best.cell}, the strongest {what}",
            icon=":material/visibility:",
            on_click=select_cell,
            args=(best.cell,),
            key="strongest",
        )
    return HeadChoice(selection.layer, selection.head)
