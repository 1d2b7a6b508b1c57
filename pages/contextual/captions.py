"""The words of the page on contextual heads; formulas are those of the definitions."""

from pages.shared.cards.explained import explained
from poskernel_core.analyses.contextual_heads.behaviour import BEHAVIOURS

CONTEXTUAL = BEHAVIOURS.index("contextual")

PLANE = explained(
    "contextual-heads",
    "One mark per head. To the right: the kernel covers many tokens. Further down: the softmax "
    "denominator of the destination token is nearly the same in all windows. Heads in the tinted "
    "corner average over the context with weights that hardly depend on it: what they write is a "
    "bag of tokens. The groups are named for layer 0: in later layers *detokenization* says no "
    "more than that the kernel is local.",
)

DENOMINATORS = explained(
    "denominators",
    "The softmax denominator of the destination token, put at each position of each window. Flat "
    "lines that lie together: the head divides by the same number everywhere. Texts of another "
    "kind (chapters, your own) lie apart if the head weights their tokens differently.",
)

VARIATION = explained(
    "denominators",
    "The coefficient of variation (CV) of the denominator over windows: its standard deviation, "
    "relative to its mean. Dashed: what is expected if the tokens of a window were drawn "
    "independently. Above it, windows differ as wholes. Only as many windows are read as can be "
    "told apart as lines; the title says how many. Where those of the table above are more and a "
    "few keys carry the denominator, the two CVs may differ by more than their errors.",
)

DUPLICATES = explained(
    "contextual-heads",
    "Attention to an earlier duplicate of the current token, by how far back it stands, and to "
    "another token in the same place. A duplicate-token head keeps the two apart; some see near "
    "duplicates only.",
)

WEIGHTS = explained(
    "token-weights",
    "How much content adds to the score of each token, beyond what a mean key at its place gets. "
    "To the right of 0 a token gets more attention than by position alone, to the left less; 0.7 "
    "nats is a factor of two. Every token counts once here, however rare: in the mean of 0 the "
    "frequent ones weigh most, so the middle of the bars may lie elsewhere.",
)

DISTANCES = explained(
    "kernel-distances",
    "One cell per pair of heads. Dark: the same kernel; heads of one group (outlined) could "
    "together hold features in superposition. Bright: they look at different tokens, and cannot.",
)
