"""The words for the figures that compare heads and models."""

from pages.shared.cards.explained import explained

KERNELS = explained(
    "compare-kernels",
    "How much of its attention each head gives to the token $n - i$ places back, by position "
    "alone. Bands are one standard error. Each head stands at the recorded query position of its "
    "own run that lies nearest to the one in the sidebar.",
    "kernel",
)

DISTANCES = explained(
    "compare-kernels",
    "How far the kernels of two heads are apart, aligned by offset: dark, 0: the same; bright, 1: "
    "nothing in common. Below each its standard error.",
    "distance",
)

MEASURES = explained(
    "compare-heads",
    "Every measure of every pinned head with its standard error. In brackets how many standard "
    "errors it lies above (+) or below (−) the first head; where that is bold, 0 lies outside of "
    "the difference's 95 % interval.",
    "value",
    "z_score",
)

APART = (
    "In brackets: how many standard errors above (+) or below (−) the first head; bold from "
    "{:.2f}, as then 0 lies outside of the difference's 95 % interval."
)

DEPTH = explained(
    "depth",
    "The mean of the measure over the heads of each layer, from the first layer (0) to the last "
    "(1), so that models of different depths lie on one axis. Thin lines: the smallest and the "
    "largest head of each layer.",
    "mean",
    "smallest",
    "largest",
)
