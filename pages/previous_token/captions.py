"""The words for the figures of previous-token heads."""

from pages.shared.cards.explained import explained

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
