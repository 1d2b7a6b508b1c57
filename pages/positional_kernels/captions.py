"""The words for the figures of kernels."""

from pages.shared.cards.explained import explained

SQUARE = explained(
    "kernel",
    "One row of the map, folded like lines of text: the first key is at the top left, the query "
    "at the bottom right. The first post uses this view: 400 positions make a 20 × 20 square. "
    "Skipped keys are blank. Colours are those of the map. Right: the kernel minus the observed "
    "attention.",
    "kernel",
    "observed",
)

SHARES = explained(
    "additivity",
    "The parts of the variance of each head's keys. If keys are a sum of position and content, "
    "there is no interaction.",
)
