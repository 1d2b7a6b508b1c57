"""Methods: every definition, and the reproduction ledger."""

import streamlit as st

from pages.methods.ledger import draw_ledger
from pages.shared.cards.explained import sections
from pages.shared.cards.plain import plain, say
from pages.shared.selection.fit import choose_one, linked
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
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
    chosen = st.selectbox("Definition", **linked("method", names))
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


PLACE = Place(
    "Methods",
    "What every number means, and how the published ones compare with ours.",
)

TABS = ("Definitions", "Reproduction ledger")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    part = choose_one("Part", TABS, "part", label_visibility="collapsed")
    if part == TABS[0]:
        st.markdown(
            "What every number means, from the docstrings of the code that computes it. Shapes are "
            "in brackets; `n` is the query position, `i` the key position. Intervals are for a "
            "number of windows that was chosen beforehand: looking again and again while results "
            "form makes them a little too narrow."
        )
        draw_plugins()
        draw_definitions()
    else:
        st.markdown(
            "Figures published in the posts and in the literature, next to the same figures "
            "computed on this machine. A figure agrees if each of its numbers differs from the "
            "published one by no more than the tolerance plus half the width of our 95 % interval."
        )
        draw_ledger(selection)
