"""The words for the figures of induction and recency."""

from pages.shared.cards.explained import PICK, explained

INDUCTION = explained(
    "induction-scores",
    "One cell per head: its mean attention, in a random sequence repeated once, from each token to "
    "the token after its earlier duplicate. Bright heads do induction; a lower loss in the second "
    f"half shows that the whole circuit works. {PICK}",
    "induction",
    "loss",
)

SEQUENCES = explained(
    "induction-recency",
    "One line for each row of the experiment: the last pair moves from left to right, the rest "
    "stays. The model predicts the token after the last [A].",
    "role",
)

PROBABILITY = explained(
    "induction-recency",
    "The probability of each candidate after the last [A], against the position of the last pair; "
    "bars are one standard error. Dotted: the mean of the random tokens. Candidates that rise to "
    "the right are preferred because they are recent.",
    "probability",
    "probability_other",
)

CANDIDATES = explained(
    "induction-recency",
    "The head's attention from the last [A] to each candidate. If attention to the moving "
    "candidate rises with its position, the head itself prefers recent tokens.",
    "candidate_attention",
)

ROWS = explained(
    "induction-recency",
    "Each line is the last row of the head's attention pattern, for one position of the last "
    "pair. Letters mark the candidates; a bright cell under each letter is induction.",
    "last_row",
)

PATTERNS = explained(
    "recency-patterns",
    "The mean attention of every head of a layer on one row of the table of sequences: queries "
    "downwards, keys to the right. An induction head's last row is bright at the candidates; a "
    "previous-token head is bright along the first diagonal.",
    "pattern",
)

INTRINSIC = explained(
    "random-attention",
    "The head's mean attention on random tokens, where only position can make a difference. A "
    "slope above zero means that recent tokens get more attention. The trend leaves out the first "
    "keys and the query itself; its R² is the share of the row's variance that a straight line "
    "explains. If R² is small, read the curve rather than the slope.",
    "pattern",
    "slope",
    "rank_correlation",
    "p_value",
)

NORMS = explained(
    "random-attention",
    "The norm of the output of each head of layer 0, against the number of visible tokens. The "
    "average of many different value vectors gets shorter; the dotted line falls as one over the "
    "square root of their number. The curve of a head that attends to few tokens stays flat. "
    "After each exponent, the legend shows how far the curve deviates from that power law at "
    "most. An exponent is meaningful only if the curve stays close to it. A click on a name in "
    "the legend shows or hides its head.",
    "norm",
    "norm_exponent",
)

CAUSE = explained(
    "equalised-norms",
    "The post names the falling norms as the cause of recency. Here layer 0's norms are equalised "
    "and everything is measured again. If the norms cause the preference for the last candidate, "
    "this preference falls. If it grows, it has another cause, and the norms worked against it. "
    "Attention to all candidates shows whether the head still does induction; if it does not, the "
    "other numbers say nothing.",
    "probability_advantage",
    "probability_rise",
    "attention",
    "attention_advantage",
    "attention_rise",
    "slope",
)
