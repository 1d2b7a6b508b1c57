"""What the reader has chosen: one frozen value in the session, which the server owns.

It is read from the address when a session begins, and when Back or Forward changes the address; it
is written there once, at the end of a run. A widget is drawn with its choice and reports a change
by a callback; nothing else reads a widget. If the server changes a choice, its widget is drawn
under another key: what the browser still says of the old one belongs to no widget.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.shared.choices.links import forwarded
from poskernel_core.common.errors import BadRequest

Address = dict[str, list[str]]

KEPT: Final = "choices"
MAX_KNOWN: Final = 20
"""So many addresses are remembered that a busy browser may not have followed yet."""


@dataclass(frozen=True)
class Choices:
    """What the reader has chosen.

    Attributes:
        values: the choices by key, for all pages; one that equals its default is absent.
        asked: what the address asks for, as text, until the page has drawn it.
        linked: whether ``asked`` is the link that opened the session: what does not fit is told.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    linked: bool = False

    def with_value(self, key: str, value: Any, default: Any) -> "Choices":
        """Return these choices with another value, of which the address asks nothing any more."""
        values = {name: held for name, held in self.values.items() if name != key}
        if value != default:
            values[key] = value
        requested = {name: texts for name, texts in self.asked.items() if name != key}
        return Choices(values, requested, self.linked)


@dataclass(frozen=True)
class Told:
    """A choice that is not shown: what was asked, what is shown, and why.

    ``model`` is a newly chosen model that lacks it; without one, a link asked for it. A page that
    does not have the choice has not ``used`` it.
    """

    key: str
    asked: str
    shown: Any = None
    offered: str = ""
    model: str = ""
    used: bool = True


@dataclass
class _Session:
    """What the session keeps beside the choices.

    Attributes:
        page: the page that is drawn; None before the first.
        aside: whether the sidebar is drawn, whose choices all pages share.
        shared: the keys of the sidebar.
        defaults: the default of each choice, as last drawn.
        spelled: a value of a choice, and what the address holds in place of it.
        widgets: the number in each widget's key, what it offers, and the value it was drawn with.
        met: the keys drawn in this run.
        before: by page, the keys drawn in the last run that drew all of it.
        known: the addresses written since the browser last spoke.
        restored: whether the browser itself has changed the address.
        waits: whether a part of the page is still missing.
        told: what is not shown as asked.
    """

    choices: Choices = field(default_factory=Choices)
    page: str | None = None
    aside: bool = True
    shared: set[str] = field(default_factory=set)
    defaults: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, tuple[Any, list[str]]] = field(default_factory=dict)
    widgets: dict[str, tuple[int, Any, Any]] = field(default_factory=dict)
    met: dict[str, None] = field(default_factory=dict)
    before: dict[str, dict[str, None]] = field(default_factory=dict)
    known: list[Address] = field(default_factory=list)
    restored: bool = False
    waits: bool = False
    told: list[Told] = field(default_factory=list)

    def keys(self, page: str) -> dict[str, None]:
        return self.before.get(page, {}) | self.met


def _session() -> _Session:
    if KEPT not in st.session_state:
        st.session_state[KEPT] = _Session()
    session: _Session = st.session_state[KEPT]
    return session


def _given() -> Address:
    return {key: st.query_params.get_all(key) for key in st.query_params}


def open_choices(page: str) -> bool:
    """Take over the address if the browser has changed it; call it before anything is drawn.

    The browser repeats its address in every word. One of those that were written since it last
    spoke is no choice of the reader's, and neither is an empty one: a page that was just opened has
    none, and Streamlit drops one that is very long.
    Tell whether the page follows another one of the session.
    """
    session, given, context = _session(), _given(), get_script_run_ctx()
    first, follows = session.page is None, session.page not in (None, page)
    moved = bool(context and context.is_history_navigation)
    moved |= bool(given) and given not in session.known
    if first or moved:
        own = session.before.get(page, {}).keys() | session.shared
        kept = {key: value for key, value in session.choices.values.items() if key not in own}
        requested = {key: tuple(texts) for key, texts in forwarded(given, page).items()}
        session.choices = Choices(kept, requested, linked=first)
        session.known, session.restored = [given], not first
    elif given in session.known:
        session.known = session.known[session.known.index(given) :]
    if follows:
        session.told = []
    session.page, session.aside, session.waits, session.met = page, True, False, {}
    return follows


def open_page() -> None:
    """Note that the choices of the page itself follow: the sidebar is drawn."""
    _session().aside = False


def waits() -> None:
    """Note that a part of the page is still missing, with its widgets."""
    _session().waits = True


def address() -> Address:
    """Return the parameters of the address that shows what is chosen."""
    session = _session()
    choices, parameters = session.choices, {}
    for key in session.keys(session.page or ""):
        if key in choices.values:
            value = choices.values[key]
            known, texts = session.spelled.get(key, (None, []))
            parameters[key] = texts if known == value else _spelled(value)
    parameters |= {key: list(texts) for key, texts in choices.asked.items()}
    return {key: texts for key, texts in parameters.items() if texts}


def shared_address() -> Address:
    """Return the part of the address that all pages share."""
    shared = _session().shared
    return {key: texts for key, texts in address().items() if key in shared}


def write_address(*, alone: bool) -> list[Told]:
    """Write the choices into the address, once the page has been drawn; return what is to be told.

    A link's parameter that the page does not use is told and dropped, but not while a part of the
    page is missing, or if one card is drawn ``alone``.
    """
    session = _session()
    choices, page = session.choices, session.page or ""
    if session.waits or alone:
        session.before[page] = session.keys(page)
    else:
        session.before[page] = session.met
        if choices.linked:
            unused = [Told(k, ", ".join(v), used=False) for k, v in choices.asked.items()]
            session.told += unused
        session.choices = Choices(choices.values)
    open_page()
    session.told = [
        notice
        for notice in session.told
        if chosen(notice.key) == notice.shown  # not changed since
    ]
    wanted, given = address(), _given()
    written = session.known[-1]  # perhaps after the browser has asked for this run
    if session.restored or wanted != given or wanted != written:
        session.known = [*session.known, wanted][-MAX_KNOWN:]
        session.restored = False
        kept = {key: wanted[key] for key in given if key in wanted}  # in their order
        st.query_params.from_dict(kept | wanted)
    return session.told


def _spelled(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [_spelled(item)[0] for item in value] or [""]
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, float):
        return [short if float(short := f"{value:g}") == value else repr(value)]
    return [str(value)]


def wanted(key: str) -> list[Any]:
    """Return what the address asks for, as texts, else what is chosen, before it is fitted."""
    session = _session()
    requested = session.choices.asked.get(key)
    if requested is not None or key not in session.choices.values:
        return [*(requested or ())]
    value = session.choices.values[key]
    return [*value] if isinstance(value, list) else [value]


def chosen(key: str, default: Any = None) -> Any:
    """Return a choice as it was last drawn, or chosen since."""
    session = _session()
    return session.choices.values.get(key, session.defaults.get(key, default))


def drawn(key: str) -> bool:
    """Tell whether a choice has been drawn in this run."""
    return key in _session().met


def choose(key: str, value: Any) -> None:
    """Set a choice: in a callback, or before it is drawn."""
    session = _session()
    session.choices = session.choices.with_value(key, value, session.defaults.get(key))


def spell(key: str, value: Any, texts: list[str]) -> None:
    """Note what the address holds in place of a value of a choice; no text: it holds nothing."""
    _session().spelled[key] = value, texts


def fit(
    key: str,
    default: Any,
    read: Callable[[tuple[str, ...]], Any],
    nearest: Callable[[Any], Any] = lambda value: value,
    offered: Callable[[], str] = str,
    moved: str = "",
    *,
    told: bool = True,
) -> Any:
    """Return a choice, moved to the nearest that is offered.

    ``read`` returns the value that texts of the address mean, and ``nearest`` the one offered in
    its place; if they raise a ValueError or BadRequest, the default is taken. A link that asks for
    something else is ``told``, and so is a choice that the newly chosen model ``moved`` lacks.
    """
    session = _session()
    if session.aside:
        session.shared.add(key)
    session.met[key] = None
    choices = session.choices
    session.defaults[key] = default
    requested = choices.asked.get(key)
    if requested is None and key not in choices.values:
        return default
    try:
        before = choices.values[key] if requested is None else read(requested)
        value = nearest(before)
    except (ValueError, OverflowError, BadRequest):
        value = default
    if requested is not None and choices.linked and told and not same(requested, value):
        session.told.append(Told(key, ", ".join(requested), value, offered()))
    elif requested is None and moved and value != before:
        session.told.append(Told(key, str(before), value, model=moved))
    session.choices = choices.with_value(key, value, default)
    return value


def widget(
    key: str, value: Any, offered: Any = None, then: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return key and callback of the widget of a choice; ``then`` is called after a change.

    Its key is another one if the browser says another value than the choice, or knew other offers.
    """
    session = _session()
    number, known, last = session.widgets.get(key, (0, offered, value))
    if known != offered or st.session_state.get(_named(key, number), last) != value:
        number += 1
    session.widgets[key] = number, offered, value
    name = _named(key, number)

    def report() -> None:
        said = st.session_state[name]
        if said == value and session.widgets[key][0] != number:
            return  # a browser that has just drawn a former widget says its default
        choose(key, said)
        if then is not None:
            then()

    return {"key": name, "on_change": report}


def _named(key: str, number: int) -> str:
    return f"{key}~{number}" if number else key


def same(texts: tuple[str, ...], value: Any) -> bool:
    """Tell whether texts of the address mean a value."""
    if isinstance(value, list | tuple):
        parts = [part for part in texts if part]
        return len(parts) == len(value) and all(map(alike, parts, value))
    return alike(texts[-1], value)


def alike(text: str, value: Any) -> bool:
    """Tell whether a text of the address means one value."""
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, int | float):
        return number(text) == value
    return text == ("" if value is None else str(value))


def number(text: str) -> float:
    """Return the number that a text means, or not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
