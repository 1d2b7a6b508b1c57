"""The words for figures that several pages draw."""

from pages.shared.cards.explained import explained

CURVE = explained(
    "kernel",
    "How much of its attention the head gives to the token $n - i$ places back, by position alone. "
    "The solid line is the mean over queries, the band holds 10 to 90 % of them. The dashed line "
    "is the attention actually observed, content included: where the two agree (a small *distance "
    "to observed attention*), position explains what the head does on average.",
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
