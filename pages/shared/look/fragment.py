"""What every page says of a model that is a part of another one, or a rounded one."""

import streamlit as st

from pages.shared.cards.plain import plain
from poskernel_core.models import catalog


def draw_note(model: str) -> None:
    """Say what is not real in a model, or rounded; nothing of a whole one."""
    note = catalog.note_of(model)
    if note:
        st.caption(f":material/info: {plain(note)}")
