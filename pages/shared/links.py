"""What a link asks for and cannot get: one notice at the top of the page names it.

Streamlit fills widgets from the address and silently ignores what does not fit. So what the address
asked for is kept before any widget is drawn, and compared with the widgets afterwards. Only a link
is judged so: what readers change themselves is in the address as well, and fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.shared.plain import plain
from poskernel_core.common.heads import layer_of

__all__ = ["offer", "read_link", "tell"]

ASKED, TOLD, PAGE, OFFERED = "link-asked", "link-told", "link-page", "link-offered"
MOST_NAMED = 8
MOST_LETTERS = 60


@dataclass(frozen=True)
class Told:
    """One part of a link that does not fit: what was asked, what is shown, and why."""

    key: str
    asked: str
    shown: Any
    offered: str

    def sentence(self) -> str:
        """Return the sentence that the reader sees."""
        why = f": {self.offered}" if self.offered else ""
        return (
            f"The link asks for {self.key} {_brief(self.asked)}; shown is {_brief(self.shown)} "
            f"instead{why}."
        )


def read_link(page: str) -> None:
    """Keep what the address asks for; call it before any widget is drawn.

    Only the address with which a visit begins is a link; on another page it no longer counts.
    """
    state = st.session_state
    if PAGE not in state:
        asked = st.query_params.get("cell", "")
        if layer_of(asked) >= 0 and asked != asked.upper():  # widgets know heads in capitals alone
            st.query_params["cell"] = asked.upper()
            st.rerun()
        state[ASKED] = {key: st.query_params.get_all(key) for key in st.query_params}
    elif state[PAGE] != page:
        state[ASKED] = {}
    if state.get(PAGE) != page:
        state[PAGE], state[TOLD], state[OFFERED] = page, [], {}


def offer(key: str, offered: Sequence[Any] | str) -> None:
    """Say what a widget offers (values, or a clause), for the notice should the link not fit."""
    if key in st.session_state.get(ASKED, {}):
        st.session_state[OFFERED][key] = offered if isinstance(offered, str) else _named(offered)


def tell(place: Any) -> None:
    """Write the notice into ``place``; call it after the page was drawn.

    A widget that is not drawn yet, because its figure is still computed, is judged when it is. A
    sentence stays until the reader changes what it is about.
    """
    state = st.session_state
    asked: dict[str, list[str]] = state[ASKED]
    for key in [each for each in asked if each.isalnum() and each in state]:
        wanted, shown = asked.pop(key), state[key]
        if isinstance(shown, str | int | float | list | tuple | None) and not _same(wanted, shown):
            told = Told(key, ", ".join(wanted), shown, state[OFFERED].get(key, ""))
            state[TOLD].append(told)
    standing = [told for told in state[TOLD] if state.get(told.key, told.shown) == told.shown]
    state[TOLD] = standing
    if standing:
        sentences = [plain(told.sentence()) for told in standing]
        text = sentences[0] if len(sentences) == 1 else "\n".join(f"- {each}" for each in sentences)
        place.warning(text, icon=":material/link_off:")


def _same(asked: list[str], shown: Any) -> bool:
    if isinstance(shown, list | tuple):
        parts = [part for part in asked if part]
        return len(parts) == len(shown) and all(map(_alike, parts, shown))
    return _alike(asked[-1], shown)


def _alike(asked: str, shown: Any) -> bool:
    if isinstance(shown, bool):
        return asked.lower() == str(shown).lower()
    if isinstance(shown, int | float):
        try:
            return float(asked) == shown
        except ValueError:
            return False
    return asked == ("" if shown is None else str(shown))


def _named(options: Sequence[Any]) -> str:
    """Return what is offered as a clause: all of a few values, else how many and their ends."""
    if not options:
        return ""
    ends = f"{options[0]} to {options[-1]}"
    if isinstance(options, range) and options.step == 1:
        return f"offered are {ends}"
    if len(options) <= MOST_NAMED:
        return f"offered are {', '.join(str(each) for each in options)}"
    return f"offered are {len(options)} values from {ends}"


def _brief(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not text or value is None:
        return "nothing"
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"
