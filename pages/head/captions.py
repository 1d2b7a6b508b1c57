"""The words for the figures of one head."""

from pages.shared.cards.explained import explained

MEASURES = explained(
    "verdicts",
    "Every measure of the head with its standard error, its bias where that is known (by how much "
    "it is too large), and its rank among all heads of the model: 1 is the largest value, whether "
    "large is good or not (↓ stands where lower is better). Kinds have no rank. A measure's name "
    "leads to the page that is about it.",
    "value",
    "rank",
)

SINKS = explained(
    "sinks",
    "Mean attention to each of the first eight keys. A high first point is a sink: the head parks "
    "its attention there. The skip in the sidebar plays no part.",
    "alpha",
)

SHARES = explained(
    "score-variance",
    "What makes one key score higher than another, seen from each query position: where it stands "
    "(position), what it is (content), or both together (covariance, below 0 where they work "
    "against each other). The three add up to 1.",
    "position_share",
    "content_share",
    "covariance_share",
)

DUPLICATES = explained(
    "contextual-heads",
    "Attention to an earlier duplicate of the current token, by how far back it stands, and to "
    "another token in the same place. A duplicate-token head lies far above the "
    "other line.",
    "duplicate_attention",
    "baseline",
)

DENOMINATORS = explained(
    "denominators",
    "The coefficient of variation (CV) of the head's softmax denominator over windows: small where "
    "the head averages alike in every window. The other line is what independent tokens would "
    "give. These are fewer windows than those of the measure of this name: where a few keys carry "
    "the denominator, the two may differ by more than their errors.",
    "denominator_cv",
    "predicted_cv",
)

SIMILARITY = explained(
    "additivity",
    "How well a passage's content keeps its direction in the keys when it is moved: 1 where "
    "content is the same everywhere, so that keys are a sum of position and content.",
    "content_similarity",
)

EXAMPLES = explained(
    "head-examples",
    "The texts in which the head attends to one key with the largest share, and where: the token "
    "that looks, and the one it looks at, in their surroundings. The first token of a text does "
    "not count. ⏎ is a line break.",
    "max_activation",
)

INDUCTION = explained(
    "induction-scores",
    "In random tokens repeated once, where each token of the second half looks: to what followed "
    "its earlier duplicate (induction), to the token before, or to the duplicate itself.",
    "induction",
    "previous_mass",
    "duplicate",
)
