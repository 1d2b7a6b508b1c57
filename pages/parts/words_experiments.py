"""The explanations of the pages on random tokens."""

from __future__ import annotations

from pages.parts.cards import Explanation

__all__ = [
    "CANDIDATES",
    "CAUSE",
    "CONDITIONS",
    "FIRST",
    "INDUCTION",
    "INTRINSIC",
    "LOOK_BACK",
    "MAPS",
    "NORMS",
    "PATTERNS",
    "PROBABILITY",
    "ROWS",
    "SCORES",
    "SEQUENCES",
]

_RECENCY = (
    "\n\nSource: Eoin Farrell, *'Recency bias' in an induction head*; more than two candidates, "
    "fitted trends and the causal test are ours."
)
_PARTS = '\n\nSource: Eoin Farrell, *The previous token head and the "look-back-two" head*.'
_SEQUENCES = r"""
Sequences of random tokens that all differ, with one token $[A]$ standing at several places:
$\dots [A][B] \dots [A][C] \dots [A]$. Special tokens are never drawn. Every row of the table has
sequences of its own, so that errors of rows are independent.
"""
_FLAT = r"""
**Flattening** multiplies the output $z_n$ of each head of layer 0 at position $n$ by
$\bar r / r_n$, where $r_n = \sqrt{\mathbb{E}\,\|z_n\|^2}$ is measured on random sequences of the
same length under the same other switches and $\bar r$ is its mean over positions; a start token's
own output is left as it is.
"""

INDUCTION = Explanation(
    "**How to read this.** One cell per head: its mean attention, in a random sequence that is "
    "repeated once, from each token to the token after its earlier copy. Bright heads do "
    "induction. Click a cell to select that head everywhere.",
    r"""
With $T$ random tokens twice, from position $s$ on:
$\text{induction} = \mathbb{E}\, A(s+T+j,\; s+j+1)$ over $0 \le j < T$.
The loss of the second copy against the first tells whether the circuit works as a whole.
"""
    + _RECENCY,
)

SEQUENCES = Explanation(
    "**How to read this.** One row of the experiment is one line; the last pair moves from left to "
    "right, everything else stays. What follows the last [A] is predicted.",
    _SEQUENCES + _RECENCY,
)

PROBABILITY = Explanation(
    "**How to read this.** How likely the model finds each candidate after the last [A], against "
    "where the last pair stands; bars are one standard error, dotted is the mean of the random "
    "tokens. Candidates that rise to the right are preferred because they are recent.",
    r"$P(t) = \mathbb{E}\,\mathrm{softmax}(\text{logits})_t$ at the last position." + _SEQUENCES
    + _RECENCY,
)  # fmt: skip

CANDIDATES = Explanation(
    "**How to read this.** The head's attention from the last [A] to each candidate. If attention "
    "to the moving candidate rises with its position, recency is in the head's own attention.",
    r"Mean $A(n, i)$ of the last position $n$ at each candidate's $i$." + _SEQUENCES + _RECENCY,
)

ROWS = Explanation(
    "**How to read this.** Each line is the last row of the head's attention pattern, for one "
    "position of the last pair. Letters mark the candidates: a bright cell under each letter is "
    "induction.",
    _SEQUENCES + _RECENCY,
)

PATTERNS = Explanation(
    "**How to read this.** The mean attention of every head of one layer on one row of the table "
    "of sequences: queries downwards, keys to the right. An induction head's last row is bright "
    "at the candidates; a previous-token head is bright along the first diagonal.",
    r"$\bar A(n,i) = \mathbb{E}\,A(n,i)$ over the row's sequences." + _SEQUENCES + _RECENCY,
)

INTRINSIC = Explanation(
    "**How to read this.** The head's mean attention on random tokens, where nothing calls for "
    "attention: what is left is what it does by position. Above zero slope: recent tokens get "
    "more. The trend leaves out the first keys and the query itself.",
    r"""
Slope: least squares over the keys before the query, the first left out, in share of attention per
token; its error is over sequences. Rank correlation: Spearman's, of the mean row with the key's
position; its p-value takes keys as independent, which they are not.
"""
    + _RECENCY,
)

NORMS = Explanation(
    "**How to read this.** How long the output of each head of layer 0 is, against the number of "
    "tokens it sees. A head that averages many different value vectors writes ever shorter ones: "
    "the dotted line falls as one over the square root. A head that sees few tokens stays flat. "
    "A click on a name in the legend shows or hides its head.",
    r"""
$r_n = \sqrt{\mathbb{E}\,\|z_n\|^2}$, before the output projection. Uniform attention over
independent values of mean zero gives $r_n \propto (n+1)^{-1/2}$; the exponent is fitted by least
squares to logarithms from position 1 on, its error is a jackknife over ten groups of sequences.
"""
    + _RECENCY,
)

CAUSE = Explanation(
    "**How to read this.** The post names the falling norms as the cause of recency. Here layer "
    "0's are made flat and everything is measured again. If the norms made the head prefer recent "
    "tokens, its preference for the last candidate falls when they are flat; if it grows, "
    "something else makes the preference, and the norms worked against it. Attention to all "
    "candidates tells whether the head still does induction; where it does not, the rest says "
    "nothing.",
    _FLAT + r"""
*Advantage*: last candidate less first, mean over rows. *Rise*: last candidate in the last row less
in the first. **Limits**: the scaling also magnifies at late positions what all sequences have in
common, it rescales the query's own position, and it leaves the norms of later layers alone. Errors
of changes take the two runs as independent.
"""
    + _RECENCY,
)  # fmt: skip

SCORES = Explanation(
    "**How to read this.** The head's mean scores from one query position, with both embeddings, "
    "with positions only, and with tokens only. Averaged over random tokens, token scores are flat "
    "but for the start token: what peaks is position.",
    r"""
Everything is computed anew in each run, norms included: a lone $W_\text{pos}$ is rescaled by them,
which is why its scores are large. **Rotary models**: nothing can be set to zero. *Position only* is
content replaced by its mean, $\text{scale}\;\bar q_n \cdot \bar k_i$ (a start token, the same in
all sequences, keeps its content); *token only* rotates every query and key as at position 0.
"""
    + _PARTS,
)

CONDITIONS = Explanation(
    "**How to read this.** The softmax of the scores, averaged: how much attention each key gets. "
    "Position alone is often sharper than what comes out in the end, because tokens smooth it.",
    SCORES.formula,
)

MAPS = Explanation(
    "**How to read this.** The head's mean pattern in one of the three runs, for all queries. A "
    "diagonal that is there with positions only is positional; look whether it begins at query 1.",
    SCORES.formula,
)

LOOK_BACK = Explanation(
    "**How to read this.** One row per head: how far back it looks, with both embeddings and by "
    "position alone, and how much attention lies there. *1 to 0* is the attention from position 1 "
    "to position 0, to be held against P(1). Click a row to select the head everywhere.",
    r"""
$P(k) = \mathbb{E}_n\,\bar A(n, n-k)$ over $n-k \ge 1$; the largest among offsets up to half of the
length.
"""
    + _PARTS,
)

FIRST = Explanation(
    "**How to read this.** The last [A]'s attention when the first [A] stands after the start "
    "token, at position 0, or after a random token; keys are moved so that [B] is key 2 in all "
    "three. If induction fails at position 0 only, the exception is the position's, not the "
    "missing start token's.",
    r"$[\text{start}][A][B] \dots [A]$, $[A][B] \dots [A]$, and $R\,[A][B] \dots [A]$." + _PARTS,
)
