"""The words for the figures of a reader's own text."""

from pages.shared.cards.explained import explained

HEADS = explained(
    "own-text",
    "One small map per head: queries from top to bottom, keys from left to right; the fuller the "
    "blue, the more attention. All heads share the scale, which one cell in a hundred exceeds. "
    "The orange bar below each map is the share of the head's score variance that position "
    "explains on this text. In a long text a cell stands for several tokens. Click a map, or move "
    "with the arrow keys and press Enter, to select that head on all pages.",
    "pattern",
    "position_share",
)

HEAD = explained(
    "own-text-head",
    "Left: the head's pattern, queries from top to bottom. Right: the text. Point at a token, or "
    "move with the arrow keys, to shade the tokens it attends to (*outgoing*) or that attend to "
    "it (*incoming*). A click, or Enter, selects the token as the query of the figure below; the "
    "selected token is underlined.",
    "pattern",
)

ROW = explained(
    "own-text-head",
    "Above: the score of every key for the chosen query, as an exact sum of two parts: the score "
    "of a mean key at that position (blue) and the effect of this text (orange); diamonds are the "
    "sum. Scores are centred, as the softmax ignores their mean. Below: the positional kernel "
    "(the softmax of the blue part) and the observed attention. Where the two agree, position "
    "decides; where they differ, content does. Kernel and attention leave out the skipped first "
    "keys and are normalised over the rest.",
    "position",
    "content",
    "kernel",
)
