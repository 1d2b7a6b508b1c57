"""Every definition, as the docstrings of the code state it."""

from __future__ import annotations

import streamlit as st

from poskernel_core.methods import Method, methods

__all__ = ["draw_definitions"]

EVERY = "all"


def draw_definitions() -> None:
    """Draw the definitions, one fold each; a link opens one of them."""
    found = methods()
    names = [EVERY, *(method.name for method in found)]
    chosen = st.selectbox("Definition", names, key="method", bind="query-params")
    for heading, runs in (("Read from the statistics of a pass", False),
                          ("Run the model again", True)):  # fmt: skip
        shown = [m for m in found if m.runs_model == runs and chosen in (EVERY, m.name)]
        if shown:
            st.subheader(heading)
        for method in shown:
            with st.expander(f"**{method.title}** (`{method.name}`): {method.summary}",
                             expanded=chosen != EVERY):  # fmt: skip
                _draw(method)


def _draw(method: Method) -> None:
    if method.about:
        st.markdown(method.about)
    values = "\n".join(f"- {value}" for value in method.values)
    st.markdown(f"**Values**\n\n{values}")
    parts = {
        "Formula": method.formula,
        "Choices": method.choices,
        "Limits": method.limits,
        "Source": method.source,
    }
    for name, text in parts.items():
        st.markdown(f"**{name}.** {text[:1].upper()}{text[1:]}")
    if method.params:
        st.markdown("**Parameters**")
        rows = [{"parameter": n, "default": d, "meaning": m} for n, d, m in method.params]
        st.dataframe(rows, hide_index=True, key=f"params-{method.name}")
    st.code(f"python -m poskernel_core show {method.name} MODEL", language="bash")
