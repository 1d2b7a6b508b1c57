"""The words for the figures of position and token."""

from pages.shared.cards.explained import explained

SCORES = explained(
    "position-vs-token",
    "The head's mean scores from one query position, with both, with positions only, and with "
    "tokens only. Averaged over random tokens, token scores are flat but for the start token: what "
    "peaks is position.",
    "score",
)

CONDITIONS = explained(
    "position-vs-token",
    "The softmax of the scores, averaged: how much attention each key gets. Position alone is "
    "often sharper than the final attention, because tokens smooth it.",
    "pattern",
)

MAPS = explained(
    "position-vs-token",
    "The head's mean pattern in each of the three runs, for all queries. A diagonal that is there "
    "with positions only is positional; check whether it begins at query 1.",
    "pattern",
)

LOOK_BACK = explained(
    "position-vs-token",
    "One row per head: how far back it looks, with both and by position alone, and how much "
    "attention lies there. *1 to 0* is the attention from position 1 to position 0, to be "
    "compared with P(1). Click a row to select the head everywhere.",
    "profile",
    "largest_offset",
    "first_mass",
)

FIRST = explained(
    "position-zero",
    "The last [A]'s attention when the first [A] stands after the start token, at position 0, or "
    "after a random token; keys are moved so that [B] is key 2 in all three. If induction fails at "
    "position 0 only, the exception is due to the position, not to the missing start token.",
    "last_row",
)
