"""The words for the figures of previous-token heads."""

from pages.shared.cards.explained import explained

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
