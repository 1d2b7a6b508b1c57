"""The words for the figures of the sources of position."""

from pages.shared.cards.explained import explained

BARS = explained(
    "position-sources",
    "The positional score of a head is a sum over the parts of the model that wrote into the "
    "stream before it. Bars on the left: the share of each part, lowest layer first; parts below 0 "
    "work against the others, and all shares add up to 1. Ticks: the same with all visible keys "
    "weighted alike, not by the kernel. On the right: how far the kernel moves when the part is "
    "taken out of the keys; these distances do not add up. Parts are direct writers, no origins: "
    "an MLP may only pass on what it read of the positional embedding. Error bars: one s.e.",
    "share",
    "equal_share",
)

MAP = explained(
    "head-position-sources",
    "What each part adds to the score of the key at each offset, less its mean over the "
    "head's kernel, since the softmax ignores a constant. Orange raises attention, blue lowers it. "
    "The columns' sums, over all parts, also those that are not shown, are the positional score. "
    "The query position is that of the sidebar.",
    "score",
)

TURNING = explained(
    "head-position-sources",
    "In a rotary model keys are turned by their position. So even a key that is the same "
    "everywhere gives a positional score. Each share is split in two: the part's mean key over all "
    "positions, turned (*supplies the constant key*), and how its key changes from position to "
    "position before it is turned (*knows its place*).",
    "turned_share",
    "place_share",
)

GRAPH = explained(
    "position-sources",
    "Layers go upwards. An edge joins a part of the model with a head that reads position from it; "
    "thick edges are shares of 0.5 or more, thin ones less than 0.25. Heads without an edge have "
    "no share that large, or no positional score to explain. Hover over a head for its sources; a "
    "click selects it. Squares on the right are MLPs; embeddings and constants stand below.",
    "share",
)
