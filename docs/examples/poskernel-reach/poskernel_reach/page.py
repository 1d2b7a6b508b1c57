"""A page for one head: how its reach changes with the query position."""

from functools import partial

from pages.shared.cards.card import card
from pages.shared.cards.explained import explained
from pages.shared.jobs import results
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.base import SkipParams
from poskernel_core.plotting.by_axes import by_axes
from poskernel_reach.question import Reach

PLACE = Place("Reach", "How many tokens back each head looks on average.", questions=("reach",))

WORDS = explained("reach", "A head that keeps its reach has a flat curve.", "reach")


def page(selection: Selection) -> None:
    """Select the head's numbers, and draw them."""
    found = results.fetch(Reach, selection.run, SkipParams(skip=selection.skip))
    if found is not None:
        head = selection.of(found)
        card("reach", partial(by_axes, head), head, WORDS, f"Reach of {selection.cell}")
