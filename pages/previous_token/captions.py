"""The words for the figures of previous-token heads."""

from pages.shared.cards.explained import explained

TABLE = explained(
    "previous-token",
    "One row per head. *Second / largest*: the second-largest diagonal of the mean attention over "
    "the largest; near 0 the head attends to one offset only. *Contrast*: how far the mean raw "
    "score at offset 0 (own token) or 1 (previous token) lies above the straight line through its "
    "neighbours; a negative contrast is a dark diagonal, a positive one a bright diagonal. "
    "*Kind*: how a head comes to the previous token. *By position*; by *negative self-attention*, "
    "which avoids the own token (a dark main diagonal); or as an *aggregator* of what earlier "
    "heads wrote one token back (a bright first diagonal). *No diagonal stands out* where the "
    "second is nearly as large as the largest. Click a row to select the head on all pages.",
    "ratio",
    "self_contrast",
    "previous_contrast",
    "kind",
)

SCORES = explained(
    "previous-token",
    "The mean raw score near the main diagonal, before the mask: later tokens (left) have one too. "
    "Dotted: the part due to position alone. A dip at the own token is negative self-attention; a "
    "peak one token back marks an aggregator. The dashed line joins the neighbours on both sides; "
    "dip and peak are measured from it.",
    "score_profile",
    "position_profile",
    "self_contrast",
    "previous_contrast",
)

TANGENT = explained(
    "tangent",
    "Solid: the score by position alone, around the query. It is the sum of the parts along the "
    "helix's *tangent* (later positions score higher), along its *radius* (near positions score "
    "higher), and the rest, which here includes the third direction. Dots: the mean raw scores of "
    "text at that offset, over all query positions, content included. A click on a name in the "
    "legend shows or hides its line; radius and rest are shown at first if they vary more than the "
    "tangent's part. Early previous-token heads of GPT-2 small read the tangent, and a dip at the "
    "own token leaves the previous one as the largest visible score.",
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
    "Left: the raw scores of every pair of positions, later keys included. Middle: the masked "
    "scores, in the same colours. Right: the softmax of the rows, the attention. Above: the whole "
    "text (attention on a log scale); below: the window in the red square. Hover for the tokens.",
    "score",
    "masked_score",
    "pattern",
)
