"""PosKernel's front end: page configuration, navigation and the shared sidebar; nothing else."""

import streamlit as st

from pages.parts.contents import fill_contents, no_contents
from pages.parts.fragment import draw_note
from pages.parts.links import read_link, tell
from pages.parts.plain import say_error
from pages.parts.results import PageStopped, say_notice
from pages.parts.selection import choose
from pages.parts.style import apply_style
from poskernel_core.errors import BadRequest
from poskernel_core.settings import check_settings

st.set_page_config(page_title="PosKernel", page_icon="pages/parts/icon.png", layout="wide")
page = st.navigation(
    {
        "Heads": [
            st.Page("pages/heads/etc_heatmap.py", title="ETC heat map", default=True),
            st.Page("pages/heads/positional_kernels.py", title="Positional kernels"),
            st.Page("pages/heads/previous_token.py", title="Previous-token heads"),
            st.Page("pages/heads/contextual.py", title="Contextual heads"),
        ],
        "Positions": [
            st.Page("pages/positions/helix.py", title="Helix"),
            st.Page("pages/positions/interventions.py", title="Interventions"),
        ],
        "Experiments": [
            st.Page("pages/experiments/induction_recency.py", title="Induction recency"),
            st.Page("pages/experiments/position_vs_token.py", title="Position against token"),
            st.Page("pages/experiments/contextual_neurons.py", title="Contextual neurons"),
        ],
        "About": [st.Page("pages/about/methods.py", title="Methods")],
    }
)
apply_style()
no_contents()
read_link(page.title)
notice = st.container()
try:
    check_settings()
    st.session_state["selection"] = chosen = choose(page.title)
    draw_note(chosen.run.model.name)
    page.run()
    fill_contents()
    say_notice()
except (PageStopped, BadRequest) as stopped:
    st.title(page.title)
    say_error(str(stopped))
tell(notice)
