"""The words for the figures of heads over training."""

from pages.shared.cards.explained import PICK, explained

CURVES = explained(
    "over-training",
    "One line per head; the band is one standard error of the measure at that checkpoint. The "
    "axis is logarithmic, with step 0 at its left end. A diamond marks the **emergence**, at half "
    "of the head's final value; the dotted line through it spans the two checkpoints between which "
    "it lies. A head above half of its final value from the first step on has no mark. A measure "
    "that fell did not emerge: such heads come last in the table.",
    "measure",
    "change",
    "emergence",
    "emergence_earliest",
)

AT_STEP = explained(
    "over-training",
    "One cell per head, layers downwards, at the step of the slider above, on one scale for all "
    f"steps. {PICK}",
    "measure",
)

GRIDS = explained(
    "over-training",
    "The grid of all heads at every checkpoint, in reading order, on one scale. The number above a "
    "grid is its step; a frame marks the selected head.",
    "measure",
)

KINDS = explained(
    "over-training",
    "The number of heads of each kind at every checkpoint, stacked, at the selected query position "
    "and skip.",
    "count",
)

KERNEL = explained(
    "kernel-over-training",
    "Each row is a checkpoint, the first at the top; each column an offset $n - i$; brightness is "
    "the share of attention by position alone (log scale). A local head is bright at the left, a "
    "uniform one has the same brightness everywhere.",
    "kernel",
    "etc",
)

TWO_SHARES = explained(
    "over-training",
    "The induction score on random tokens repeated once, and the mean attention to the first token "
    "of the windows (the measure «attention sink», nothing skipped), with their standard errors.",
    "measure",
)
