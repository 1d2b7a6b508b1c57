"""Every definition, from the docstrings of the code."""

import streamlit as st

from pages.shared.cards.explained import sections
from pages.shared.cards.plain import plain, say
from pages.shared.selection.fit import linked
from poskernel_core.analyses.definitions import Method, methods
from poskernel_core.common import plugins

ALL = "all"


def draw_plugins() -> None:
    """Say what other installed packages add, and what of it could not be loaded."""
    for each in plugins.PLUGINS:
        if each.problem:
            say(f"{each.package} is left out ({each.name}): {each.problem}")
        else:
            kind = "page" if each.group == plugins.PAGES else "question"
            gives = " and ".join(f"the {kind} {name}" for name in each.gives)
            st.markdown(f":small[{plain(f'{each.package} adds {gives}.')}]")


def draw_definitions() -> None:
    """Draw the definitions, each in an expander; a link may open one of them."""
    found = methods()
    names = [ALL, *(method.name for method in found)]
    chosen = st.selectbox("Definition", names, **linked("method"))
    for heading, runs in (
        ("Read from the statistics of a pass", False),
        ("Run the model again", True),
    ):
        shown = [m for m in found if m.runs_model == runs and chosen in (ALL, m.name)]
        if shown:
            st.subheader(heading)
        for method in shown:
            with st.expander(
                f"**{method.title}** (`{method.name}`): {method.summary}", expanded=chosen != ALL
            ):
                _draw(method)


def _draw(method: Method) -> None:
    if method.about:
        st.markdown(method.about)
    values = "\n".join(f"- {value}" for value in method.values)
    st.markdown(f"**Values**\n\n{values}")
    for section in sections(method):
        st.markdown(section)
    if method.params:
        st.markdown("**Parameters**")
        columns = ("parameter", "default", "bounds", "meaning")
        rows = [dict(zip(columns, each, strict=True)) for each in method.params]
        st.dataframe(rows, hide_index=True, key=f"params-{method.name}")
    st.code(f"python -m poskernel_core show {method.name} MODEL", language="bash")
