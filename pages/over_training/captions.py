"""The words for the figures of heads over training."""

from pages.shared.cards.explained import explained

CURVES = explained(
    "over-training",
    "One line per head; the band is one standard error of the measure at that checkpoint. The "
    "axis is logarithmic, step 0 stands at its left end. A diamond marks the **emergence**, at "
    "half of the head's final value; the dotted line through it reaches over the gap between two "
    "checkpoints in which it could lie. A head that is above half of its final value from the "
    "first step on, as one that hardly changes may be, has no mark: see how much it changed. A "
    "measure that fell did not emerge: such heads come last in the table.",
    "measure",
    "change",
    "emergence",
    "emergence_earliest",
)

AT_STEP = explained(
    "over-training",
    "One cell per head, layers downwards, at the step of the slider above; colours mean the same "
    "at every step. Click a cell, or walk with the arrow keys and press Enter, and that head is "
    "shown everywhere.",
    "measure",
)

GRIDS = explained(
    "over-training",
    "The grid of all heads at every checkpoint, in reading order, on one scale. The number above a "
    "grid is its step; the selected head is framed.",
    "measure",
)

KINDS = explained(
    "over-training",
    "How many heads are of each kind at every checkpoint, one on top of the other, at the chosen "
    "query position and skip.",
    "count",
)

KERNEL = explained(
    "kernel-over-training",
    "Each row is a checkpoint, early ones above; across is the offset $n - i$, brightness the "
    "share of attention by position alone (log scale). A local head is bright at the left, a "
    "uniform one alike all over.",
    "kernel",
    "etc",
)

TWO_SHARES = explained(
    "over-training",
    "The induction score on random tokens repeated once, and the mean attention in the windows "
    "from all positions to the first token, where heads park attention that they do not need: the "
    "measure «attention sink», nothing skipped. Both with their standard errors.",
    "measure",
)
