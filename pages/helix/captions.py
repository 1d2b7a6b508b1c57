"""The words for the figures of the helix."""

from pages.shared.cards.explained import explained

HELIX = explained(
    "helix",
    "Each point is one position, drawn on the first three principal components of the stream "
    "before the chosen layer, in brackets their shares of the variance; neighbours are joined. In "
    "GPT-2 small the positions draw a helix. "
    "Drag to turn it; narrow the range of positions to look closer: the components stay those of "
    "all positions. Green diamonds are averages of neighbouring positions: where they fall towards "
    "the axis, averaging removes what distinguishes neighbours.",
    "projection",
)

MORPH = explained(
    "helix",
    "The same curve, layer after layer, each on its own components (signs agree with the layer "
    "before) and in units of its own size. Press play, or move the slider below the figure.",
    "projection",
)

VARIANCE = explained(
    "helix",
    "The share of the variance over positions that the first components hold, for every layer. The "
    "fewer are needed, the more the positions lie on a curve in few dimensions.",
    "explained_variance",
)

ANGLES = explained(
    "helix",
    "The largest canonical angle between the top-k subspaces of two layers: 0° where one lies in "
    "the other, 90° where they have a direction with nothing in common. Hover for all k angles. "
    "Left in the residual stream (which directions hold position), right in position space (which "
    "functions of the position are held).",
    "angles_residual",
    "angles_position",
)

SHAPE = explained(
    "helix",
    "*Far from 0*: the share of entries of $X^l$ beyond the chosen multiple of their root mean "
    "square; the post finds about a third as many in later layers as in $W_\\text{pos}$. *Spread*: "
    "how much one prompt's embeddings differ from the mean, relative to the mean; over repeated "
    "tokens it is small where the choice of token hardly matters, over windows it is mostly their "
    "content.",
    "far_share",
    "token_spread",
)
