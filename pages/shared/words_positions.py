"""The words of the pages on positions and previous-token heads; formulas are the definitions'."""

from __future__ import annotations

from pages.shared.explained import explained

__all__ = [
    "ANGLES",
    "AVERAGING",
    "BARS",
    "HELIX",
    "LOSS",
    "MASSES",
    "MORPH",
    "PATTERNS",
    "PROFILE",
    "SCORES",
    "SHAPE",
    "STAGES",
    "TABLE",
    "TANGENT",
    "VARIANCE",
]

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

TABLE = explained(
    "previous-token",
    "One row per head. *Second / largest*: the second-largest diagonal of the mean attention over "
    "the largest; near 0 the head does one thing only. *Contrast*: by how much the mean raw score "
    "at offset 0 (own token) or 1 (previous token) differs from the straight line through its "
    "neighbours: negative is a dark diagonal, positive a bright one. *Kind*: by which part the "
    "previous token's score beats the own token's. Click a row to select the head everywhere.",
    "ratio",
    "self_contrast",
    "previous_contrast",
    "kind",
)

PROFILE = explained(
    "previous-token",
    "The mean attention to the token k places back, over all windows and positions; the band is "
    "one standard error. A clean previous-token head has nearly all of it at k = 1.",
    "profile",
)

SCORES = explained(
    "previous-token",
    "The mean raw score near the main diagonal, before the mask, so that later tokens (left) have "
    "one too; dotted, the part of it that is due to position alone. A dip at the own token is "
    "negative self-attention; a peak one token back is the mark of an aggregator. The dashed line "
    "joins the neighbours on both sides, against which dip and peak are measured.",
    "score_profile",
    "position_profile",
    "self_contrast",
    "previous_contrast",
)

TANGENT = explained(
    "tangent",
    "The solid line is the score by position alone, around the query; it is the sum of what the "
    "head reads along the helix's *tangent* (advanced positions score higher), along its *radius* "
    "(near positions score higher), and the rest, in which the third direction is counted here. "
    "Dots are the mean raw scores of real text at that offset, over all query positions, content "
    "included. A click on a name in the legend shows or hides its line; of radius and rest, those "
    "that vary more than the tangent's part are shown from the start. Early previous-token heads "
    "of GPT-2 small read the tangent, and a dip at the own token leaves the previous one as the "
    "largest visible score.",
    "position_score",
    "tangent_part",
    "radial_part",
    "third_part",
    "rest",
    "observed_score",
    "helix_fit",
)

STAGES = explained(
    "stages",
    "Left the raw scores of every pair of positions, later keys included; middle the same without "
    "what the mask hides; right the softmax of its rows, the attention. Colours mean the same for "
    "the first two. Above the whole text (attention on a log scale), below the window that the red "
    "square marks; hover for the tokens.",
    "score",
    "masked_score",
    "pattern",
)

PATTERNS = explained(
    "intervention",
    "The selected head's attention on this prompt: clean, changed, and the difference (orange: "
    "more attention after the change, blue: less).",
    "clean",
    "changed",
    "difference",
)

BARS = explained(
    "intervention",
    "What the model expects after the prompt, before and after the change: the six likeliest "
    "tokens of each.",
    "clean_probability",
    "changed_probability",
)

LOSS = explained(
    "intervention",
    "Above, how badly each token of the prompt was predicted; below, how far the whole prediction "
    "moved. Peaks show where the change matters.",
    "clean_loss",
    "changed_loss",
    "kl",
)

MASSES = explained(
    "intervention",
    "One cell per head: by how much its mean attention to the previous token on this prompt "
    "changed. Click a cell to look at that head.",
    "previous_mass_change",
)

AVERAGING = explained(
    "averaging",
    "The loss on windows of the corpus when positions are averaged in groups of growing size; bars "
    "are one standard error of the difference from the clean run, paired over windows. GPT-2 small "
    "is hardly affected by groups of 5 to 20.",
    "loss",
    "loss_change",
)
