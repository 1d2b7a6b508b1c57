"""The settings that a link asks for, and a notice about those that cannot be met.

Streamlit fills widgets from the address and silently ignores what does not fit. So the address is
stored before any widget is drawn, and compared with the widgets afterwards. Only the link that
opens a session is compared, because what readers change themselves fits.

A run of the script may be cut short, or stop above a widget that waits for a figure. If the browser
was sent a widget but did not show it, it takes the widget's default for the reader's choice. So
widgets are filled from the address in every run until one run has drawn the whole page.
"""

import re
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.shared.cards.embed import embedded
from pages.shared.cards.plain import plain
from poskernel_core.common.heads import layer_of
from poskernel_core.common.renamed import KEYS, MODELS, SHOWN

ASKED, TOLD, PAGE = "link-asked", "link-told", "link-page"
JUDGED, WAITS, OFFERED = "link-judged", "link-waits", "link-offered"
UNUSED = object()
"""Stands for the value of a parameter that the page does not use."""
MAX_NAMED = 8
MAX_LETTERS = 60


@dataclass(frozen=True)
class Told:
    """One parameter that does not fit: what was asked, what is shown, and why.

    ``model`` is a newly chosen model that lacks it; without one, a link asked for it.
    """

    key: str
    asked: str
    shown: Any
    offered: str = ""
    model: str = ""

    def sentence(self) -> str:
        """Return the sentence for the reader."""
        if self.shown is UNUSED:
            return f"The link gives {self.key} {_brief(self.asked)}, which this page does not use."
        if self.model:
            return f"{self.model} has no {self.key} {self.asked}; shown is {self.shown} instead."
        why = f": {self.offered}" if self.offered else ""
        return (
            f"The link asks for {self.key} {_brief(self.asked)}; shown is {_brief(self.shown)} "
            f"instead{why}."
        )

    def stands(self) -> bool:
        """Tell whether the reader has not changed the parameter since."""
        if self.shown is UNUSED:
            return self.key not in st.session_state
        return bool(st.session_state.get(self.key, self.shown) == self.shown)


def read_link(page: str) -> None:
    """Store what the address asks for; call it before any widget is drawn.

    Only the address that opens a session is compared with the page, or forwarded.
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
            if key.isalnum() and key in state:  # left by a run that did not draw the whole page
                del state[key]
    state[WAITS] = False


def _forwarded(link: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return a link with renamed parameters, and its head in capitals as in the widgets."""
    found: dict[str, list[str]] = {}
    for old, values in link.items():
        key = KEYS.get(old, old)
        if key != old and key in link:  # the link has the parameter under its new name too
            continue
        found[key] = [SHOWN.get(key, {}).get(value, value) for value in values]
        if key == "head":
            found[key] = [value.upper() if layer_of(value) >= 0 else value for value in values]
        elif key == "pins":
            found[key] = [_forwarded_pins(value) for value in values]
    return found


def _forwarded_pins(pins: str) -> str:
    """Return pins with renamed settings and models."""
    pins = pins.replace(";texts=", ";windows=")
    return re.sub("(?<=@)[^@;,]+", lambda name: MODELS.get(name[0], name[0]), pins)


def write(key: str, value: Any) -> None:
    """Give a widget a value in a callback, or before it is drawn, instead of the address's."""
    st.session_state[key] = value
    st.session_state.get(ASKED, {}).pop(key, None)


def note_moved(key: str, asked: Any, shown: Any, model: str) -> None:
    """Note that a choice has moved because a newly chosen model lacks it."""
    st.session_state[TOLD].append(Told(key, str(asked), shown, model=model))


def taken(key: str) -> None:
    """Note that the page itself reads a parameter, without a widget."""
    st.session_state[ASKED].pop(key, None)


def waits() -> None:
    """Note that a part of the page is still missing, with its widgets."""
    st.session_state[WAITS] = True


def tell(place: Any) -> None:
    """Write the notice into ``place``; call it after the page was drawn.

    A widget whose figure is still being computed is compared once it is drawn. A sentence stays
    until the reader changes the parameter.
    """
    state = st.session_state
    asked: dict[str, list[str]] = state[ASKED]
    for key in [each for each in asked if each.isalnum()]:
        shown = state.get(key, UNUSED)
        if shown is UNUSED and (state[WAITS] or embedded()):
            continue
        wanted = asked.pop(key)
        known = isinstance(shown, str | int | float | list | tuple | None)
        if state[JUDGED] and (shown is UNUSED or (known and not _same(wanted, shown))):
            offered = state.get(OFFERED, {}).get(key, "")
            if isinstance(shown, bool):
                offered = "offered are true and false"
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


def note_offered(
    key: str, options: list[Any] | None, ends: tuple[float, float] | None = None
) -> None:
    """Note what a widget offers, as a clause: its options, or all between two ends."""
    said = ""
    if ends is not None:
        said = f"offered are {ends[0]:g} to {ends[1]:g}"
    elif options and len(options) > MAX_NAMED:
        said = f"offered are {len(options)} values from {options[0]} to {options[-1]}"
    elif options:
        said = f"offered are {', '.join(map(str, options))}"
    st.session_state.setdefault(OFFERED, {})[key] = said


def _brief(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not text or value is None:
        return "nothing"
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}…"
