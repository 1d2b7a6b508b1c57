"""The additivity test: are keys a sum of position and content?"""

from functools import partial

import streamlit as st

from pages.positional_kernels import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.one_head import draw_similarity, shares_told
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import find
from poskernel_core.analyses.additivity.figures import shares_figure
from poskernel_core.analyses.additivity.spec import Additivity, AdditivityParams
from poskernel_core.common.rounding import counted, value_text


def draw_additivity(selection: Selection) -> None:
    """Draw the parts of the keys' variance, and how similar content stays across positions."""
    st.subheader("Is the split additive?", anchor="additivity")
    params = find("additivity").default_params(selection.run, selection.located.geometry)
    found = results.fetch(Additivity, selection.run, AdditivityParams(**params))
    if found is None:
        return
    head = selection.of(found)
    last = head.select(shift=int(found.coordinates["shift"][-1]))
    st.markdown(
        f"{shares_told(head, selection.cell)} Moved by "
        f"{counted(int(found.coordinates['shift'][-1]), 'token')}, content keeps its direction "
        f"with a cosine of {value_text(last, 'content_similarity')}. "
        f"({counted(found.provenance['passages'], 'passage')} at "
        f"{counted(len(found.coordinates['shift']), 'place')}.)"
    )
    left, right = st.columns(2)
    with left:
        shares = found.only("position_share", "content_share", "interaction_share")
        shares = shares.select(layer=selection.layer)
        figure = partial(shares_figure, found, selection.layer)
        title = f"Position and content, layer {selection.layer}"
        card("shares", figure, shares, words.SHARES, title)
    with right:
        draw_similarity(found, selection)
