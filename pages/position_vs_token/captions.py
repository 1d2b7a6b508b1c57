"""The words for the figures of position and token."""

from pages.shared.cards.explained import explained

SCORES = explained(
    "position-vs-token",
    "The head's mean scores from one query position: with positions and tokens, with positions "
    "only, and with tokens only. Averaged over random tokens, the scores with tokens only are "
    "flat except at the start token, so peaks come from position.",
    "score",
)

CONDITIONS = explained(
    "position-vs-token",
    "The mean softmax of the scores: how much attention each key gets. Position alone is often "
    "sharper than the final attention, because tokens smooth it.",
    "pattern",
)

MAPS = explained(
    "position-vs-token",
    "The head's mean pattern in each of the three runs, for all queries. A diagonal in the run "
    "with positions only is positional; check whether it begins at query 1.",
    "pattern",
)

LOOK_BACK = explained(
    "position-vs-token",
    "One row per head: the offset of its largest diagonal, with both and by position alone, and "
    "the attention there. Compare *1 to 0*, the attention from position 1 to position 0, with "
    "P(1). Click a row to select the head on all pages.",
    "profile",
    "largest_offset",
    "first_mass",
)

FIRST = explained(
    "position-zero",
    "The last [A]'s attention in three cases: the first [A] stands after the start token, at "
    "position 0, or after a random token. Keys are shifted so that [B] is key 2 in all three. If "
    "induction fails only at position 0, the position is the cause, not the missing start token.",
    "last_row",
)
