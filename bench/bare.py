"""The floor of ``bench.pages``: a Streamlit app of two pages with one Plotly chart each.

``streamlit run bench/bare.py -- 52`` adds plain elements, up to as many as a page of ours has: half
of them in a sidebar that is the same beside both pages, where one in three is a selection.
"""

import sys

import numpy as np
import plotly.graph_objects as go
import streamlit as st

MORE = max(0, int([*sys.argv[1:], "2"][0]) - 2)


def draw() -> None:
    """Draw sentences, and a line of 512 points."""
    for place in range(MORE // 2):
        st.markdown(f"Sentence **{place}** of {page.title}.", help="What it is")
    y = np.random.default_rng(0).random(512)
    st.plotly_chart(go.Figure(go.Scatter(y=y), {"height": 360}), key="figure")


st.set_page_config(layout="wide")
pages = [st.Page(draw, title=name, url_path=name.lower()) for name in ("First", "Second")]
page = st.navigation(pages, position="top")
with st.sidebar:
    for place in range(MORE - MORE // 2):
        if place % 3:
            st.markdown(f"Sentence **{place}** beside every page.")
        else:
            st.selectbox(f"Choice {place}", ["one", "another"])
st.title(page.title)
page.run()
