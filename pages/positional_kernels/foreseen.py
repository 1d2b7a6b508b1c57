"""How much attention falls on keys chosen beforehand: in the head, and in each layer's cache."""

from functools import partial

import numpy as np
import streamlit as st

from pages.positional_kernels import captions as words
from pages.shared.cards.card import card
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.foreseen.figures import cache_figure, foreseen_figure
from poskernel_core.analyses.foreseen.spec import ForeseenAttention, ForeseenParams


def draw_foreseen(selection: Selection) -> None:
    """Draw what few keys capture of the head's attention, and how large caches must be."""
    st.subheader("How much attention can be foreseen?", anchor="foreseen-attention")
    asked = ForeseenParams(skip=selection.skip, query=selection.query)
    found = results.fetch(ForeseenAttention, selection.run, asked)
    if found is None:
        return
    if np.isnan(found.values["captured"]).all():
        st.info(
            "Keys are chosen by one half of the texts and measured on the other half. These sums "
            "are not kept by groups of texts, as those that come with the project: choose another "
            "number of windows."
        )
        return
    head, at = selection.of(found), f"n = {selection.query}"
    left, right = st.columns(2)
    with left:
        title = f"Keys chosen beforehand, {selection.cell} at {at}"
        card("foreseen", partial(foreseen_figure, head), head, words.FORESEEN, title)
    with right:
        if "kept_keys" not in found.values:
            st.caption("The caches of whole layers come with the last windows.")
            return
        layers = found.only("cache_for_95", "fixed_cache_for_95", "kept_keys", "kept_captured")
        title = f"How many keys would be enough, by layer at {at}"
        card("cache", partial(cache_figure, layers), layers, words.CACHE, title)
