"""The words for figures on several pages."""

from pages.shared.cards.explained import explained

DUPLICATES = explained(
    "contextual-heads",
    "Attention to an earlier duplicate of the current token, by how far back it stands, and to "
    "another token at the same distance. In a duplicate-token head the first line lies far above "
    "the second; some such heads see near duplicates only.",
    "duplicate_attention",
    "baseline",
)

VARIATION = explained(
    "denominators",
    "The coefficient of variation (CV) of the softmax denominator over windows: its standard "
    "deviation, relative to its mean. Dashed: the value expected if the tokens of a window were "
    "independent. The title gives the number of windows. The measure of all heads reads more "
    "windows. If a few keys carry the denominator, that measure and this curve may differ by more "
    "than their errors.",
    "denominator_cv",
    "predicted_cv",
)

SIMILARITY = explained(
    "additivity",
    "How similar the keys of a passage stay, with position subtracted, when the passage is moved "
    "by so many tokens. At 1, the content part of the keys is the same wherever the passage "
    "stands: keys are a sum of position and content.",
    "content_similarity",
)
