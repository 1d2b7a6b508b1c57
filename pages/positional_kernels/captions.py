"""The words for the figures of kernels."""

from pages.shared.cards.explained import explained

MAP = explained(
    "kernel-map",
    "Each row is one query position, each column a key position; brightness is the share of "
    "attention (log scale, at least a factor of ten). A local head draws a thin diagonal, a "
    "uniform head a filled triangle. If a diagonal band keeps its shape downwards, the head is "
    "translation equivariant. Left the kernel (position alone), in the middle the attention "
    "observed, in the same colours; right their difference: orange where position promises more "
    "than is observed, blue where content adds attention. Its scale reaches at least a tenth of "
    "the largest share, so that small differences stay grey.",
    "kernel",
    "observed",
)

SQUARE = explained(
    "kernel",
    "One row of the map, folded like lines of text: the first key is at the top left, the query "
    "itself at the bottom right. It is the view of the first post, where 400 positions make a "
    "20 × 20 square; skipped keys are left blank. Colours are those of the map: at least a factor "
    "of ten, so that a nearly flat row looks flat; right the kernel minus the attention observed.",
    "kernel",
    "observed",
)

MULTIPLES = explained(
    "kernel",
    "The kernels of all heads of the selected layer at the same query position, on the same axes. "
    "Heads with very different kernels can hardly be in superposition with each other; heads with "
    "similar ones are candidates.",
    "kernel",
)

SHARES = explained(
    "additivity",
    "Where the variance of each head's keys comes from. If keys are the sum of a part of position "
    "and a part of content, there is no interaction.",
)

SIMILARITY = explained(
    "additivity",
    "The same passage, moved by that many tokens: does its content leave the same keys? 1: it "
    "does, wherever the passage stands.",
)
