"""The words for the figures of the helix."""

from pages.shared.cards.explained import explained

HELIX = explained(
    "helix",
    "Each point is a position, on the first three principal components of the residual stream "
    "before the chosen layer (in brackets their shares of the variance); neighbours are joined. "
    "In GPT-2 small the positions form a helix. Drag to turn it. If you narrow the range of "
    "positions, the components are still those of all positions. Green diamonds are averages of "
    "neighbouring positions: where they fall towards the axis, averaging removes the differences "
    "between neighbours.",
    "projection",
)

MORPH = explained(
    "helix",
    "The same curve in every layer. Each layer is drawn on its own components and its own scale; "
    "the components' signs are chosen to agree between layers. Press play, or move the slider "
    "below the figure.",
    "projection",
)

VARIANCE = explained(
    "helix",
    "For every layer, the share of the variance over positions that the first components hold. If "
    "few suffice, the positions lie on a curve in few dimensions.",
    "explained_variance",
)

ANGLES = explained(
    "helix",
    "The largest canonical angle between the top-k subspaces of two layers: 0° if they are equal, "
    "90° if one has a direction orthogonal to the other. Hover for all k angles. Left: in the "
    "residual stream (which directions hold position). Right: in position space (which functions "
    "of position they hold).",
    "angles_residual",
    "angles_position",
)

SHAPE = explained(
    "helix",
    "*Far from 0*: the share of entries of $X^l$ beyond the chosen multiple of their root mean "
    "square; the post finds about a third as many in later layers as in $W_\\text{pos}$. *Spread*: "
    "how much one prompt's embeddings differ from the mean, relative to the mean. With repeated "
    "tokens it is small if the choice of token hardly matters; with windows it is mostly content.",
    "far_share",
    "token_spread",
)
