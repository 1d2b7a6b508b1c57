"""The reader's text: its field, examples, and its address."""

from typing import Final

import streamlit as st

from pages.shared.cards.plain import say_error
from pages.shared.jobs.pressed import NOTHING_NEW
from pages.shared.jobs.results import engine
from pages.shared.selection.links import taken, write
from poskernel_core.common.errors import BadRequest, StoreFailed
from poskernel_core.common.settings import settings
from poskernel_core.engine.admission import computes
from poskernel_core.storage.typed import check_text, is_name, keep_text, kept_text

PARAMETER: Final = "text"
FIELD: Final = "own-text"
LAST: Final = "own-text-last"
"""The session's text and its address, kept because a widget forgets its value on another page."""

MAX_IN_ADDRESS: Final = 8000
EXAMPLES: Final = {
    "A list that repeats": "blue fire water house king garden; blue fire water house king garden; "
    "blue fire",
    "A verse": "In the beginning God created the heaven and the earth. And the earth was without "
    "form, and void; and darkness was upon the face of the deep.",
    "A program": "def total(numbers):\n    result = 0\n    for number in numbers:\n"
    "        result += number\n    return result\n",
}


def choose_text() -> str | None:
    """Draw the field and the examples; return the text, or None if it is empty or invalid.

    The address has the name of the text if the server keeps texts, otherwise the text itself.
    """
    gone = _follow_address()
    text: str = st.text_area(
        "Your text",
        key=FIELD,
        height=130,
        placeholder="Type or paste a text, up to the context. Ctrl+Enter shows it.",
        help="only those who have the link can see it",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Examples:", width="content")
        for name, example in EXAMPLES.items():
            st.button(name, on_click=write, args=(FIELD, example), key=f"example-{name}")
    if gone:
        st.warning(gone, icon=":material/link_off:")
    if not text.strip():
        _remember("", None)
        if not gone:
            st.info(
                "Type or paste a text, or take an example, to see every head's attention on it."
                if computes()
                else f"{NOTHING_NEW} A text appears here if it was computed with these settings."
            )
        return None
    try:
        check_text(text)
        address = _address_of(text)
        _remember(text, address)
    except BadRequest as error:
        say_error(str(error))
        return None
    if address is None:
        st.caption(
            f"This text is too long for a link: this server does not keep texts, and a link holds "
            f"up to {MAX_IN_ADDRESS:,} characters."
        )
    return text


def _follow_address() -> str:
    """Fill the field from a changed address; return a sentence if its text is gone."""
    taken(PARAMETER)
    asked = st.query_params.get(PARAMETER)
    text, written = st.session_state.get(LAST, ("", None))
    if FIELD in st.session_state and asked in (None, written):
        return ""
    if asked in (None, written):  # return from another page
        st.session_state[FIELD] = text
        return ""
    if not is_name(asked):
        st.session_state[FIELD] = asked
        return ""
    found = kept_text(engine().store, asked)
    if found is not None:
        st.session_state[FIELD] = found
        return ""
    if FIELD in st.session_state and st.session_state[FIELD].strip():
        return ""
    return (
        "This server does not have the text of the link: type or paste it again, or ask the sender "
        "for it."
    )


def _remember(text: str, address: str | None) -> None:
    """Write the address of the text, and keep both for the session."""
    if not text and (asked := st.query_params.get(PARAMETER)) and is_name(asked):
        return  # a link whose text is gone stays as it is
    st.session_state[LAST] = (text, address)
    if address is None:
        st.query_params.pop(PARAMETER, None)
    elif st.query_params.get(PARAMETER) != address:
        st.query_params[PARAMETER] = address


def _address_of(text: str) -> str | None:
    """Return a text's parameter in the address; None if it is too long."""
    if settings().keep_texts and computes():
        try:
            return keep_text(engine().store, text)
        except StoreFailed:
            pass  # a full or read-only store: the address holds the text itself
    return text if len(text) <= MAX_IN_ADDRESS else None
