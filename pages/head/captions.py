"""The words for the figures of one head."""

from pages.shared.cards.explained import explained

MEASURES = explained(
    "verdicts",
    "Every measure of the head with its standard error, its bias if known (by how much the value "
    "is too large), and its rank among all heads of the model. Rank 1 is the largest value; ↓ "
    "marks a measure for which lower is better. Kinds have no rank. A measure's name links to the "
    "page on it.",
    "value",
    "rank",
)

SINKS = explained(
    "sinks",
    "Mean attention to each of the first eight keys. A high first point is an attention sink. The "
    "skip in the sidebar has no effect here.",
    "alpha",
)

SHARES = explained(
    "score-variance",
    "What makes one key score higher than another, for each query position: its position, its "
    "content, or their covariance (below 0 if they work against each other). The three add up to "
    "1.",
    "position_share",
    "content_share",
    "covariance_share",
)

SOURCES = explained(
    "position-sources",
    "The parts of the model that write the positional score of the head's keys, and their shares, "
    "which add up to 1. A part below 0 works against the others. Ticks: the same with all visible "
    "keys weighted alike. Parts are direct writers: an MLP may only pass on what it read of the "
    "positional embedding.",
    "share",
    "equal_share",
)

EXAMPLES = explained(
    "head-examples",
    "The windows with the head's largest attention to a single key: the query token and the key "
    "token, each in its context. The first token of a window does not count. ⏎ is a line break.",
    "max_activation",
)

INDUCTION = explained(
    "induction-scores",
    "Random tokens, repeated once: the attention from the second half to the token after the "
    "earlier duplicate (induction), to the previous token, and to the duplicate itself.",
    "induction",
    "previous_mass",
    "duplicate",
)
