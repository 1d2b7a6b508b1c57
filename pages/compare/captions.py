"""The words for the figures that compare heads and models."""

from pages.shared.cards.explained import explained

KERNELS = explained(
    "compare-kernels",
    "The share of attention that each head gives to the token $n - i$ places back, by position "
    "alone. Bands are one standard error. Each kernel is that of the query position recorded in "
    "its run that is nearest to the one in the sidebar.",
    "kernel",
)

DISTANCES = explained(
    "compare-kernels",
    "The distance between the kernels of two heads, aligned by offset, with its standard error. "
    "Dark (0): the same; bright (1): disjoint.",
    "distance",
)

MEASURES = explained(
    "compare-heads",
    "Every measure of every pinned head with its standard error. In brackets: how many standard "
    "errors above (+) or below (−) the first head; bold if 0 lies outside the difference's 95 % "
    "interval.",
    "value",
    "z_score",
)

APART = (
    "In brackets: how many standard errors above (+) or below (−) the first head; bold from "
    "{:.2f} on, where 0 lies outside the difference's 95 % interval."
)

DEPTH = explained(
    "depth",
    "The mean of the measure over the heads of each layer, from the first layer (0) to the last "
    "(1). Thin lines: the smallest and the largest value in each layer.",
    "mean",
    "smallest",
    "largest",
)
