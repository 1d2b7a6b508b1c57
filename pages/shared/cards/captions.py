"""The words for figures on several pages."""

from pages.shared.cards.explained import explained

CURVE = explained(
    "kernel",
    "The share of attention that the head gives to the token $n - i$ places back, by position "
    "alone. Solid: the mean over queries; the band holds 10 to 90 % of them. Dashed: the observed "
    "attention, content included. Where the two agree (a small *distance to observed attention*), "
    "position explains what the head does on average. Up to offset 16 each token is a point on a "
    "stem, beyond it a line joins them (from 34 on, means of several offsets). Grey: the other "
    "heads of the layer. Below: the observed attention divided by the kernel. The bar at the top: "
    "how much of all its attention, on average over positions, the head gives to the first keys, "
    "which the curve leaves out.",
    "kernel",
    "observed",
    "query_variation",
    "attention_distance",
)

PROFILE = explained(
    "previous-token",
    "The mean attention to the token k places back, over all windows and positions; the band is "
    "one standard error. A clean previous-token head has nearly all of it at k = 1.",
    "profile",
)

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
