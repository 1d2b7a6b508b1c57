"""The words for the figures of one head."""

from pages.shared.cards.explained import explained

MEASURES = explained(
    "verdicts",
    "Every measure of the head with its standard error, and its rank among all heads of the "
    "model. Rank 1 is the largest value; ↓ "
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

ANATOMY = explained(
    "sink-anatomy",
    "The first key of a text stands first, has position 0, and is the start token, all at once. "
    "Here the three are taken apart: two front tokens, a target and a filler, stand before the "
    "same text in every arrangement. A blue bar says how much more attention the target gets with "
    "that property than without it. Grey bars are what properties do only together. The lower "
    "bars say how the start token acts in place of an ordinary first token: through its own key, "
    "or through the queries of the text, which earlier layers have changed. The table gives the "
    "attention to both front keys in every arrangement; a token's id is its position. The effects "
    "do not say what the head reads from its sink, and most arrangements are unlike anything in "
    "training.",
    "standing_first",
    "interaction",
    "key_effect",
    "attention",
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

PLACES = explained(
    "place-and-content",
    "What would decide the scores if every key stood at every place: the place, whatever the key; "
    "the key (content), wherever it stands; or only both together, as where a key counts only at "
    "its own distance. These three add up to 1. The covariance, besides them, says how far place "
    "and content go together in the real text. «Place share» is not how far attention is decided "
    "by position: scores of keys that no head attends to count as much as any others.",
    "place_share",
    "content_share",
    "both_share",
    "covariance_share",
)

ALONE = explained(
    "kernel-only-cost",
    "What the model loses, in nats a token, if something that is the same for every text takes "
    "the head's place. If the first bar is much shorter than the last, position carries what the "
    "head gives. An estimate can be several times too large; the Kernel page computes it exactly.",
    "cost",
    "kernel_only_share",
)

COPYING = explained(
    "copying",
    "Whether the head raises the very token that it looks at, whatever it looks at. From the first "
    "layer: of most frequent tokens, as that layer leaves them in texts, the share that the "
    "head raises into its ten highest logits. From the embedding: the same for their embeddings. "
    "Eigenvalues: above 0 it raises embedded tokens, below 0 it lowers them.",
    "copying_share_first_layer",
    "copying_share",
    "copying_eigenvalues",
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
