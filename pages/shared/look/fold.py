"""Folds whose content is made once the reader opens them.

A fold that asks for a run whenever it is opened or closed is closed again by the answer to its
closing, if the reader has opened it anew meanwhile. So the browser alone opens and closes it; what
is inside asks for itself when it is first seen.
"""

from typing import Any, Final

import streamlit as st

UNFOLDED: Final = "unfolded"
"""The folds of the session that have been opened."""

_ASKS = st.components.v2.component(
    "pk-asks",
    html="<div></div>",
    js="""export default ({ data, parentElement, setTriggerValue }) => {
      if (data.filled) return;
      const seen = new IntersectionObserver((places) => {
        if (!places.some(({ isIntersecting }) => isIntersecting)) return;
        seen.disconnect();
        setTriggerValue("wanted", true);
      }, { rootMargin: "400px", scrollMargin: "400px" });
      seen.observe(parentElement.querySelector("div"));
      return () => seen.disconnect();
    }""",
)


def fold(label: str, key: str, *, wanted: bool = False, is_open: bool = False) -> Any:
    """Draw a fold; return its place once it has been opened or is ``wanted``, else None.

    It ``is_open`` at first where a link leads into it.
    """
    unfolded = st.session_state.setdefault(UNFOLDED, set())
    place, filled = st.expander(label, is_open, key=key), is_open or wanted or key in unfolded
    with place:
        _ASKS(
            key=f"asks-{key}",
            data={"filled": filled},
            on_wanted_change=lambda: unfolded.add(key),
        )
    return place if filled else None
