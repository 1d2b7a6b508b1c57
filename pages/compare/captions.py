"""The words for the figures that compare heads and models."""

from pages.shared.cards.explained import explained

KERNELS = explained(
    "compare-kernels",
    "The share of attention that each head gives to the token $n - i$ places back, by position "
    "alone. Bands are one standard error. Each run has kernels at its recorded query positions; "
    "the position nearest to the one in the sidebar is drawn.",
    "kernel",
)

DISTANCES = explained(
    "compare-kernels",
    "The distance between the kernels of two heads, aligned by offset, with its standard error. "
    "Dark (0): the kernels are equal. Bright (1): they do not overlap.",
    "distance",
)

MEASURES = explained(
    "compare-heads",
    "Every measure of every pinned head with its standard error. In brackets: by how many "
    "standard errors the head lies above (+) or below (−) the first head. Bold: 0 lies outside "
    "the 95 % interval of the difference.",
    "value",
    "z_score",
)

APART = (
    "In brackets: by how many standard errors the head lies above (+) or below (−) the first "
    "head. Bold: {:.2f} or more, so that 0 lies outside the 95 % interval of the difference."
)

DEPTH = explained(
    "depth",
    "The mean of the measure over the heads of each layer, from the first layer (0) to the last "
    "(1). Thin lines: the smallest and the largest value in each layer.",
    "mean",
    "smallest",
    "largest",
)
