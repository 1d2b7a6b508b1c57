"""The words of the page on a text of the reader's own; formulas are those of the definitions."""

from pages.shared.cards.explained import explained

HEADS = explained(
    "own-text",
    "One small map per head: queries from top to bottom, keys from left to right, the fuller the "
    "blue, the more a head attends; the scale, which all heads share, ends where one cell in a "
    "hundred lies above. The orange bar below each is position's share of the variance of its "
    "scores on this text: full where the place of a key alone decides how it scores. In a long "
    "text a cell stands for several tokens. Click a map, or walk with the arrow keys and press "
    "Enter, to select that head everywhere.",
    "pattern",
    "position_share",
)

HEAD = explained(
    "own-text-head",
    "Left the head's pattern, queries from top to bottom. Right the text: point at a token, or "
    "walk with the arrow keys, and the tokens that it attends to are shaded; with *incoming* those "
    "that attend to it. A click, or Enter, takes the token as the query of the figure below; it "
    "is underlined.",
    "pattern",
)

ROW = explained(
    "own-text-head",
    "Above, the score of every key for the chosen query, split exactly in two: what a mean key at "
    "that position would score (blue), and what this text adds to it (orange); diamonds are their "
    "sum. Scores are drawn less their mean, which the softmax ignores. Below, the positional "
    "kernel, which is the softmax of the blue part, and the attention that the head really "
    "pays. Where the two agree, position decides; where they differ, content does. The skipped "
    "first keys are left out of both, and the attention is divided by what is left.",
    "position",
    "content",
    "kernel",
)
