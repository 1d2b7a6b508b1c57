"""The words for the figures of contextual heads."""

from pages.shared.cards.explained import explained
from poskernel_core.analyses.contextual_heads.spec import BEHAVIOURS

CONTEXTUAL = BEHAVIOURS.index("contextual")

PLANE = explained(
    "contextual-heads",
    "One mark per head. To the right: the kernel covers many tokens. Down: the softmax "
    "denominator of the destination token is nearly the same in all windows. Heads in the tinted "
    "corner average over the context, with weights that hardly depend on the context: they write "
    "a bag of tokens. The groups are named for layer 0; in later layers *detokenization* means "
    "only that the kernel is local.",
)

DENOMINATORS = explained(
    "denominators",
    "The destination token is put at each position of each window; the lines show its softmax "
    "denominator there. If the lines are flat and close together, the head divides by the same "
    "number everywhere. Lines of other texts (chapters, your own) lie apart if the head weights "
    "the tokens of these texts differently.",
)

WEIGHTS = explained(
    "token-weights",
    "How much content adds to the score of each token, compared with a mean key at its position. "
    "To the right of 0, a token gets more attention than by position alone; to the left, less. "
    "0.7 nats is a factor of two. The bars need not be centred at 0: here every token counts "
    "once, but in the mean key frequent tokens weigh most.",
)
