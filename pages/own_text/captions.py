"""The words for the figures of a reader's own text."""

from pages.shared.cards.explained import explained

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
