"""The words for the figures of one head."""

from pages.shared.cards.explained import explained

SOURCES = explained(
    "position-sources",
    "The parts of the model that write the positional score of the head's keys, and their shares, "
    "which add up to 1. A part below 0 works against the others. Ticks: the same with all visible "
    "keys weighted alike. Parts are direct writers: an MLP may only pass on what it read of the "
    "positional embedding.",
    "share",
    "equal_share",
)
