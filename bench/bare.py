"""The floor of ``bench.pages``: a Streamlit app of two pages with one Plotly chart each."""

import numpy as np
import plotly.graph_objects as go
import streamlit as st


def draw() -> None:
    """Draw a line of 512 points."""
    y = np.random.default_rng(0).random(512)
    st.plotly_chart(go.Figure(go.Scatter(y=y), {"height": 360}), key="figure")


st.set_page_config(layout="wide")
pages = [st.Page(draw, title=name, url_path=name.lower()) for name in ("First", "Second")]
page = st.navigation(pages, position="top")
st.title(page.title)
page.run()
