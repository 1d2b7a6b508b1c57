"""What the address asks for: it holds until the page is drawn, and a notice names what cannot be.

Streamlit fills widgets from the address and silently ignores what does not fit. So what the address
asked for is kept before any widget is drawn, and compared with the widgets afterwards. Only a link
is judged so: what readers change themselves is in the address as well, and fits.

A run of the script may be cut short, or end above a widget that waits for a figure. A browser that
was sent a widget and did not show it takes its default for the reader's choice. So a widget is
filled from the address in each run anew until one run has drawn the whole page with it.
"""

import re
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.shared.cards.plain import plain
from poskernel_core.common.heads import layer_of
from poskernel_core.common.renamed import KEYS, MODELS, SHOWN

ASKED, TOLD, PAGE = "link-asked", "link-told", "link-page"
JUDGED, WAITS = "link-judged", "link-waits"
UNUSED = object()
"""What is shown for a part of a link that nothing on the page takes."""
MAX_NAMED = 8
MAX_LETTERS = 60


@dataclass(frozen=True)
class Told:
    """One part of a link that does not fit: what was asked, what is shown, and why."""

    key: str
    asked: str
    shown: Any
    offered: str

    def sentence(self) -> str:
        """Return the sentence that the reader sees."""
        if self.shown is UNUSED:
            return f"The link gives {self.key} {_brief(self.asked)}, which has no use here."
        why = f": {self.offered}" if self.offered else ""
        return (
            f"The link asks for {self.key} {_brief(self.asked)}; shown is {_brief(self.shown)} "
            f"instead{why}."
        )

    def stands(self) -> bool:
        """Tell whether this is still so: the reader has changed nothing about it."""
        if self.shown is UNUSED:
            return self.key not in st.session_state
        return bool(st.session_state.get(self.key, self.shown) == self.shown)


def read_link(page: str) -> None:
    """Keep what the address asks for; call it before any widget is drawn.

    Only the address with which a visit begins is a link that is judged, or forwarded.
    """
    state = st.session_state
    if PAGE not in state:
        given = {key: st.query_params.get_all(key) for key in st.query_params}
        if (link := _forwarded(given)) != given:
            st.query_params.from_dict(link)
            st.rerun()
    if state.get(PAGE) != page:
        state[ASKED] = {key: st.query_params.get_all(key) for key in st.query_params}
        state[JUDGED] = PAGE not in state
        state[PAGE], state[TOLD] = page, []
    else:
        for key in state[ASKED]:
            if key.isalnum() and key in state:  # of a run that did not draw the whole page
                del state[key]
    state[WAITS] = False


def _forwarded(link: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return a link by the names of today, with its head in capitals, as widgets know heads."""
    found: dict[str, list[str]] = {}
    for old, values in link.items():
        key = KEYS.get(old, old)
        if key != old and key in link:  # which says it by the name of today
            continue
        found[key] = [SHOWN.get(key, {}).get(value, value) for value in values]
        if key == "head":
            found[key] = [value.upper() if layer_of(value) >= 0 else value for value in values]
        elif key == "pins":
            found[key] = [_forwarded_pins(value) for value in values]
    return found


def _forwarded_pins(pins: str) -> str:
    """Return pins by the names of today."""
    pins = pins.replace(";texts=", ";windows=")
    return re.sub("(?<=@)[^@;,]+", lambda name: MODELS.get(name[0], name[0]), pins)


def write(key: str, value: Any) -> None:
    """Give a widget a value in a callback, or before it is drawn, whatever the address asks for."""
    st.session_state[key] = value
    st.session_state.get(ASKED, {}).pop(key, None)


def taken(key: str) -> None:
    """Note that the page itself reads a part of the address, without a widget."""
    st.session_state[ASKED].pop(key, None)


def waits() -> None:
    """Note that a part of the page is not there yet, with all the widgets that it may have."""
    st.session_state[WAITS] = True


def tell(place: Any) -> None:
    """Write the notice into ``place``; call it after the page was drawn.

    A widget that is not drawn yet, because its figure is still computed, is judged when it is. A
    sentence stays until the reader changes what it is about.
    """
    state = st.session_state
    asked: dict[str, list[str]] = state[ASKED]
    for key in [each for each in asked if each.isalnum()]:
        shown = state.get(key, UNUSED)
        if shown is UNUSED and state[WAITS]:
            continue
        wanted = asked.pop(key)
        known = isinstance(shown, str | int | float | list | tuple | None)
        if state[JUDGED] and (shown is UNUSED or (known and not _same(wanted, shown))):
            offered = "" if shown is UNUSED else _offered(key)
            state[TOLD].append(Told(key, ", ".join(wanted), shown, offered))
    standing = [told for told in state[TOLD] if told.stands()]
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


def _offered(key: str) -> str:
    """Return what a widget offers as a clause: Streamlit alone knows it of all of them."""
    context = get_script_run_ctx()
    state = context.session_state._state if context else None
    name = state.get_widget_id_from_key(key) if state else None
    known = state.get_widget_metadata(name) if state and name else None
    if known is None:
        return ""
    if known.value_type == "bool_value":
        return "offered are true and false"
    widget: Any = getattr(known.deserializer, "__self__", None)
    if hasattr(widget, "min_value"):
        return f"offered are {widget.min_value:g} to {widget.max_value:g}"
    options = list(map(str, known.formatted_options or getattr(widget, "options", None) or []))
    if len(options) > MAX_NAMED:
        return f"offered are {len(options)} values from {options[0]} to {options[-1]}"
    return f"offered are {', '.join(options)}" if options else ""


def _brief(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not text or value is None:
        return "nothing"
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}…"
