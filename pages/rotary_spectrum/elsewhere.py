"""What the page says where there is no rotation: why, and where to go."""

from __future__ import annotations

import streamlit as st

from pages.shared import results
from pages.shared.place import page_link
from pages.shared.plain import plain
from pages.shared.selection import Selection, select_model
from poskernel_core.common.errors import PosKernelError
from poskernel_core.models import catalog

__all__ = ["say_why_not"]

MOST_OFFERED = 3


def say_why_not(selection: Selection) -> None:
    """Say that this model turns nothing, and lead to what fits it and to models that do."""
    name, scheme = selection.run.model.name, selection.located.geometry.scheme
    way = (
        f"The page {page_link('helix', 'Helix')} shows how such a model holds position."
        if scheme == "learned"
        else "The other pages show what its heads do with position."
    )
    st.info(
        f"**{plain(name)}** has {scheme} positions: it does not turn its queries and keys, so its "
        f"heads have no wavelengths. {way}",
        icon=":material/info:",
    )
    st.markdown(
        "Models with **rotary positions** (Llama, Mistral, Qwen, GPT-NeoX and Pythia, SmolLM and "
        "many others) add nothing to the stream. They turn each query and each key, pair of "
        "dimensions by pair, by an angle that grows with its position, every pair at a speed of "
        "its own. When a query meets a key, only the difference of their angles counts, so a head "
        "reads the distance between the two off many clocks at once. For such a model this page "
        "shows the clocks of each head: which wavelengths it uses, the kernel that they make, and "
        "what is left of it without the fast or the slow ones."
    )
    offered = _rotary_models(name)
    known = [plain(each.name) for each in catalog.entries() if "rotary" in each.positions]
    if not offered:
        where = f", such as {' or '.join(known)}" if known else ", if one is offered there"
        st.markdown(
            "No model with rotary positions comes with the project: choose one in the sidebar"
            f"{where}. Its weights come from the model hub."
        )
    buttons = st.container(horizontal=True)
    for place, other in enumerate(offered):
        buttons.button(
            f"Show {plain(other)}",
            icon=":material/schedule:",
            key=f"rotary-{place}",
            on_click=select_model,
            args=(other,),
        )


def _rotary_models(shown: str) -> list[str]:
    """Return models on offer that turn queries and keys, as far as no network is needed to know."""
    found = []
    for entry in catalog.entries():
        if entry.name != shown and catalog.is_local(entry.name):
            try:
                geometry = results.located(entry.name, None).geometry
            except PosKernelError:  # the sidebar says why, once it is chosen
                continue
            if geometry.scheme == "rotary":
                found.append(entry.name)
    return found[:MOST_OFFERED]
