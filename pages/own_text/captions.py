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
    "Left: the head's pattern, queries from top to bottom; point at a cell to read its share. "
    "Right: the text. Point at a token, or move with the arrow keys, to shade the tokens it "
    "attends to (*outgoing*) or that attend to it (*incoming*). *Lines* shows the tokens twice, "
    "queries left and keys right, with lines that are the wider the larger the share. A click, or "
    "Enter, selects the token as the query of the figure below; the selected token is underlined.",
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

REASONS = explained(
    "score-components",
    "The score of one key for the chosen query, as an exact sum over what wrote the two tokens' "
    "vectors: embeddings, earlier heads (such as L2H6) and MLPs. Top: by the query's parts, which "
    "say what is asked for. Middle: by the key's parts, which say what is found. Bottom: the "
    "largest pairs. Each panel adds up to the same score; blue raises it, orange lowers it. The "
    "softmax ignores what all keys share, so read the score *less the row's mean*, or *against "
    "another key*. A part is what wrote last: where its information comes from is not said.",
    "component_score",
    "mean_component_score",
)

STACKS = explained(
    "score-components",
    "The scores of all keys of the chosen query, stacked by the key's parts: the five that vary "
    "most, and all the rest as one. Diamonds are the sums. Parts above and below zero cancel. A "
    "part of equal height everywhere does not matter to the softmax.",
    "key_margin",
    "score",
)

WRITES = explained(
    "head-writes",
    "The tokens that the head makes more likely here (blue) and less likely (orange), by what it "
    "adds to their logits directly. What later heads and MLPs make of it is not in these numbers: "
    "in the first layers they often mean little.",
    "contribution",
)

BY_KEY = explained(
    "head-writes",
    "What each key that the head looked at adds to one of these tokens: its attention times what "
    "its value writes. The bars of all keys add up to the token's bar; the twelve largest are "
    "drawn.",
    "by_key",
)

LOGIT = explained(
    "logit-contributions",
    "What every head adds to the logit of the token, directly. Below, the same for all heads and "
    "MLPs together and for everything else; all of it adds up to the logit. Click a head, or move "
    "with the arrow keys and press Enter, to select it, and see its attention above.",
    "head_contribution",
    "rest_contribution",
)
