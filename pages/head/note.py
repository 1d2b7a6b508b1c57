"""A reader's note on the head, stored in a file beside the store."""

import json
from dataclasses import asdict
from typing import Final

import streamlit as st

from pages.shared.cards.plain import say_error
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.settings import settings
from poskernel_core.storage.notes import MAX_NOTE, Notes

THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")


def draw_note(selection: Selection) -> None:
    """Draw the note on the head, if the server allows notes."""
    allowed = settings().notes
    if allowed is None:
        allowed = st.get_option("server.address") in THIS_MACHINE
    if not allowed:
        return
    notes, model = Notes(results.engine().store.directory), selection.located.spec
    try:
        written = notes.of(model.fingerprint, selection.cell)
    except PosKernelError as error:
        say_error(str(error))
        return
    label = "Note" if not written else f"Note: {written.splitlines()[0][:80]}"
    box = st.expander(label, icon=":material/edit_note:", key="note-box")
    key = f"note-{model.fingerprint}-{selection.cell}"
    text = box.text_area(
        f"What you noted on {selection.cell}",
        written,
        key=key,
        max_chars=MAX_NOTE,
        placeholder="Kept on this machine, for this model's head",
    )
    row = box.container(horizontal=True)
    if row.button("Keep the note", icon=":material/save:", key="keep-note"):
        try:
            notes.write(model.name, model.fingerprint, selection.cell, text)
        except PosKernelError as error:
            say_error(str(error))
            return
        st.rerun()
    every = notes.all()
    row.download_button(
        "All notes",
        json.dumps([asdict(each) for each in every], indent=1, ensure_ascii=False),
        "poskernel-notes.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        disabled=not every,
        key="all-notes",
    )
