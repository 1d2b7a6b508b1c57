"""More keys and longer contexts: how far a kernel spreads, and what scaled angles change."""

from functools import partial

import streamlit as st

from pages.positional_kernels import captions as words
from pages.shared.cards.card import card
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.head_link import head_link
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses.dilution.figures import (
    dilution_figure,
    kernels_figure,
    loss_figure,
    ranking,
    ranking_figure,
)
from poskernel_core.analyses.dilution.longer import LongerContexts, LongerContextsParams
from poskernel_core.analyses.dilution.spec import Dilution, DilutionParams
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text


def draw_dilution(selection: Selection) -> None:
    """Draw how the selected head's ETC grows with its visible keys."""
    st.subheader("Does it spread out over more keys?", anchor="more-keys")
    found = results.fetch(Dilution, selection.run, DilutionParams(skip=selection.skip))
    if found is not None:
        head = selection.of(found)
        title = f"Effective token count of {selection.cell} over its visible keys"
        card("dilution", partial(dilution_figure, head), head, words.DILUTION, title)


def draw_longer(selection: Selection) -> None:
    """Draw kernels and loss in longer contexts, if asked for, since the model runs again."""
    st.subheader("What breaks in a longer context?", anchor="longer")
    geometry = selection.located.geometry
    if geometry.scheme == "learned":
        st.caption(
            f"This model's positions are learned and end at {counted(geometry.n_ctx, 'token')}, so "
            "it reads no longer context."
        )
        return
    asked = LongerContextsParams(skip=selection.skip)
    cards = ("longer-kernel", "longer-heads", "longer-loss")
    found = fetch_when_asked(LongerContexts, selection.run, asked, "compute-longer", *cards)
    if found is None:
        return
    st.markdown(_read(found))
    head = selection.of(found)
    kernels = head.only("kernel", "longest_distance", "distance")
    title = f"Kernel of {selection.cell} in longer contexts"
    card("longer-kernel", partial(kernels_figure, kernels), kernels, words.LONGER, title)
    left, right = st.columns(2)
    with left:
        shown = found.only("longest_distance", "distance")
        title, draw = "Heads whose kernels change most", partial(_draw_ranking, shown)
        card("longer-heads", partial(ranking_figure, shown), shown, words.RANKING, title, draw)
    with right:
        loss = found.only("loss_change", "loss")
        title = "Loss by position in the longest context"
        card("longer-loss", partial(loss_figure, loss), loss, words.LONGER_LOSS, title)


def _read(found: Result) -> str:
    """Say how long the contexts are, held against the trained length, and what is left out."""
    length, factors = found.params["length"], found.coordinates["factor"].tolist()
    longest, trained = factors[-1] * length, found.provenance["trained_length"]
    within = (
        "even the longest context is no longer"
        if longest <= trained
        else "longer contexts are new to it"
    )
    told = [
        f"{counted(found.provenance['texts'], 'text')}, read in contexts of {length:,} tokens and "
        f"of {' and '.join(map(str, factors[1:]))} times as many.",
        f"The model was made for {counted(trained, 'token')}: {within}.",
        *(f"Left out: {reason}." for reason in found.provenance["left_out"]),
    ]
    return " ".join(told).replace("..", ".")


def _draw_ranking(found: Result) -> None:
    """Draw a table of the heads that change most, with links."""
    names, last = found.words("scaling"), int(found.coordinates["factor"][-1])
    rows = []
    for layer, head in ranking(found):
        own = found.select(layer=layer, head=head, factor=last)
        numbers = (value_text(own.select(scaling=place), "distance") for place in range(len(names)))
        rows.append((head_link(head_name(layer, head)), *numbers))
    markdown_table(("Head", *(f"{name} angles" for name in names)), rows)
