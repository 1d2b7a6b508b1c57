"""The words for the figures of kernels."""

from pages.shared.cards.explained import explained

SHARES = explained(
    "additivity",
    "The parts of the variance of each head's keys. If keys are a sum of position and content, "
    "there is no interaction.",
)
