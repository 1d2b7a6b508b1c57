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

DILUTION = explained(
    "dilution",
    "Points: the kernel's effective token count at query positions with more and more visible "
    "keys, both on log axes. A head that keeps its reach has a flat curve (slope 0), a head that "
    "spreads over all keys follows the dotted line (slope 1). The dashed lines are fitted to all "
    "points and to the upper half; where they differ, the curve bends. A flat curve does not mean "
    "that the head ignores far tokens: content may still lead it there. Bars are one standard "
    "error.",
    "alpha",
    "alpha_upper",
    "etc",
)

LONGER = explained(
    "longer-contexts",
    "The selected head's kernel over the same offsets, at the end of contexts of different "
    "lengths. All contexts end with the same tokens, so curves differ only by position and by "
    "what stands before. Own angles: the model as it is. Linear: all angles divided by the "
    "factor. YaRN: only slow pairs are slowed down, and scores are sharpened. A kernel that moves "
    "does not show that the head's task fails. Bands are one standard error.",
    "kernel",
    "distance",
)

RANKING = explained(
    "longer-contexts",
    "The heads whose kernel changes most in the longest context, with any of the angles: the "
    "distance to the kernel at the shortest length, from 0 (the same) to 1 (no overlap).",
    "longest_distance",
    "distance",
)

LONGER_LOSS = explained(
    "longer-contexts",
    "Mean loss along the longest context, in steps of an eighth of the length; the dotted line is "
    "the length itself. Own angles left of it are the model as trained. A rise to the right of it "
    "that scaled angles do not have comes from positions that the model has not seen. Texts "
    "differ in difficulty along the way, and a new document makes a step in all curves, so "
    "compare curves rather than places.",
    "loss",
    "loss_change",
)
