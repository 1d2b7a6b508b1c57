"""The words for the figures of induction and recency."""

from pages.shared.cards.explained import explained

INDUCTION = explained(
    "induction-scores",
    "One cell per head: its mean attention, in a random sequence that is repeated once, from each "
    "token to the token after its earlier duplicate. Bright heads do induction; a lower loss of "
    "the second half shows that the circuit works as a whole. Click a cell to select that head "
    "everywhere.",
    "induction",
    "loss",
)

SEQUENCES = explained(
    "induction-recency",
    "One row of the experiment is one line; the last pair moves from left to right, everything "
    "else stays. What follows the last [A] is predicted.",
    "role",
)

PROBABILITY = explained(
    "induction-recency",
    "How likely the model finds each candidate after the last [A], against where the last pair "
    "stands; bars are one standard error, dotted is the mean of the random tokens. Candidates that "
    "rise to the right are preferred because they are recent.",
    "probability",
    "probability_other",
)

CANDIDATES = explained(
    "induction-recency",
    "The head's attention from the last [A] to each candidate. If attention to the moving "
    "candidate rises with its position, recency is in the head's own attention.",
    "candidate_attention",
)

ROWS = explained(
    "induction-recency",
    "Each line is the last row of the head's attention pattern, for one position of the last pair. "
    "Letters mark the candidates: a bright cell under each letter is induction.",
    "last_row",
)

PATTERNS = explained(
    "recency-patterns",
    "The mean attention of every head of one layer on one row of the table of sequences: queries "
    "downwards, keys to the right. An induction head's last row is bright at the candidates; a "
    "previous-token head is bright along the first diagonal.",
    "pattern",
)

INTRINSIC = explained(
    "random-attention",
    "The head's mean attention on random tokens, where nothing calls for attention: what is left "
    "is what it does by position. Slope above zero: recent tokens get more. The trend leaves out "
    "the first keys and the query itself; its R² is the part of the row's variance that a straight "
    "line explains, and where that is small, read the curve rather than the slope.",
    "pattern",
    "slope",
    "rank_correlation",
    "p_value",
)

NORMS = explained(
    "random-attention",
    "How long the output of each head of layer 0 is, against the number of tokens it sees. A head "
    "that averages many different value vectors writes ever shorter ones: the dotted line falls as "
    "one over the square root. A head that sees few tokens stays flat. After each exponent the "
    "legend says how far the curve lies off that power law where it is farthest: an exponent "
    "describes only a curve that stays close to it. A click on a name in the legend shows or hides "
    "its head.",
    "norm",
    "norm_exponent",
)

CAUSE = explained(
    "equalised-norms",
    "The post names the falling norms as the cause of recency. Here layer 0's are equalised and "
    "everything is measured again. If the norms made the head prefer recent tokens, its preference "
    "for the last candidate falls when they are equal; if it grows, something else makes the "
    "preference, and the norms worked against it. Attention to all candidates shows whether the "
    "head still does induction; where it does not, the rest says nothing.",
    "probability_advantage",
    "probability_rise",
    "attention",
    "attention_advantage",
    "attention_rise",
    "slope",
)
