"""The additivity test: are keys the sum of a part of position and a part of content?"""

from functools import partial

import streamlit as st

from pages.positional_kernels import captions as words
from pages.shared.cards.card import card
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import find
from poskernel_core.analyses.additivity.figures import shares_figure, similarity_figure
from poskernel_core.analyses.additivity.spec import Additivity, AdditivityParams
from poskernel_core.common.rounding import counted, value_text


def draw_additivity(selection: Selection) -> None:
    """Draw where the keys' variance comes from, and how similar content stays across positions."""
    st.subheader("Is the split additive?", anchor="additivity")
    params = find("additivity").default_params(selection.run, selection.located.geometry)
    found = results.fetch(Additivity, selection.run, AdditivityParams(**params))
    if found is None:
        return
    head = selection.of(found)
    last = head.select(shift=int(found.coordinates["shift"][-1]))
    st.markdown(
        f"Of the variance of the keys of **{selection.cell}** position explains "
        f"{value_text(head, 'position_share')}, content {value_text(head, 'content_share')}, and "
        f"their interaction {value_text(head, 'interaction_share')}. Moved by "
        f"{counted(int(found.coordinates['shift'][-1]), 'token')}, the same content keeps its "
        "direction with "
        f"a cosine of {value_text(last, 'content_similarity')}. "
        f"({counted(found.provenance['passages'], 'passage')} at "
        f"{counted(len(found.coordinates['shift']), 'place')}.)"
    )
    left, right = st.columns(2)
    with left:
        shares = found.only("position_share", "content_share", "interaction_share")
        card(
            "shares",
            partial(shares_figure, found, selection.layer),
            shares.select(layer=selection.layer),
            words.SHARES,
            f"Position and content, layer {selection.layer}",
        )
    with right:
        card(
            "similarity",
            partial(similarity_figure, found, selection.layer, selection.head),
            head.only("content_similarity"),
            words.SIMILARITY,
            f"Content similarity across positions, {selection.cell}",
        )
