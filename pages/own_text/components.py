"""Components drawn in the browser: all heads' patterns on a text, and one head's tokens."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from pages.shared.look.component import component
from pages.shared.selection.selection import select_head
from poskernel_core.analyses.own_text.figures import head_labels, packed_head, packed_patterns
from poskernel_core.common.result import Result, plain

_HERE = Path(__file__).parent
_PATTERNS = component("patterns", _HERE, "patterns", "<div class='patterns'></div>")
_TOKENS = component("tokens", _HERE, "tokens", "<div class='attention'></div>")


def draw_patterns(found: Result, cell: str) -> None:
    """Draw every head's pattern; a click selects the head on every page."""
    key = "own-patterns"

    def selected() -> None:
        picked = st.session_state[key].cell
        if picked:
            select_head(picked)

    if key in st.session_state:
        st.session_state[key]["cell"] = cell
    data = packed_patterns(found) | {
        "labels": head_labels(found),
        "shares": plain(found.values["position_share"]),
        "selected": cell,
    }
    _PATTERNS(key=key, data=data, on_cell_change=selected)


def draw_tokens(found: Result, token: int, direction: str, pick: Callable[[int], None]) -> None:
    """Draw one head's pattern and the tokens; a click on a token picks its position."""
    key = "own-tokens"

    def selected() -> None:
        picked = st.session_state[key].token
        if picked is not None:
            pick(int(picked))

    if key in st.session_state:
        st.session_state[key]["token"] = token
    data = packed_head(found) | {"selected": token, "direction": direction}
    _TOKENS(key=key, data=data, on_token_change=selected)
