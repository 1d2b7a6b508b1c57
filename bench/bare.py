"""The floor of ``bench.pages``: a Streamlit app of two pages with one Plotly chart each.

``streamlit run bench/bare.py -- 15`` adds what a page of ours has: so many cards, each one element
with a title and a sentence, and a sidebar of 16 elements that is the same beside both pages.
"""

import sys

import numpy as np
import plotly.graph_objects as go
import streamlit as st

CARDS = int([*sys.argv[1:], "0"][0])
CARD = st.components.v2.component(
    "bare-card",
    html="<h3></h3><p></p>",
    js="""export default ({ data, parentElement }) => {
      parentElement.querySelector("h3").textContent = data.title;
      parentElement.querySelector("p").textContent = data.sentence;
    }""",
    isolate_styles=False,
)


def draw() -> None:
    """Draw a line of 512 points, and the cards."""
    y = np.random.default_rng(0).random(512)
    st.plotly_chart(go.Figure(go.Scatter(y=y), {"height": 360}), key="figure")
    for place in range(CARDS):
        data = {"title": f"Card {place}", "sentence": f"A sentence of {page.title}."}
        CARD(key=f"card-{place}", data=data)


st.set_page_config(layout="wide")
pages = [st.Page(draw, title=name, url_path=name.lower()) for name in ("First", "Second")]
page = st.navigation(pages, position="top")
if CARDS:
    with st.sidebar:
        for place in range(4):
            st.markdown(f"Sentence **{place}** beside every page.")
            st.selectbox(f"Choice {place}", ["one", "another"])
            st.selectbox(f"Choice {place} of two", ["one", "another"])
            CARD(key=f"side-{place}", data={"title": "Beside", "sentence": "every page"})
st.title(page.title)
page.run()
