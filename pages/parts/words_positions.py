"""The explanations of the pages on positions and previous-token heads."""

from __future__ import annotations

from pages.parts.cards import Explanation

__all__ = [
    "ANGLES",
    "AVERAGING",
    "BARS",
    "HELIX",
    "LOSS",
    "MASSES",
    "MORPH",
    "PATTERNS",
    "PROFILE",
    "SCORES",
    "SHAPE",
    "STAGES",
    "TABLE",
    "TANGENT",
    "VARIANCE",
]

_SOURCE = (
    "\n\nSource: Adam Yedidia, *The positional embedding matrix and previous-token heads: how do "
    "they actually work?* (2023)."
)

_EXTENDED = r"""
**Extended positional embeddings** $X^l$: the residual stream before layer $l$ on prompts made of
one token repeated, minus its mean over positions, averaged over many tokens. At $l = 0$ this is
$W_\text{pos}$ minus its mean. Measured over real texts instead, it is the mean stream at each
position, the start token's left out.
"""

_INTERVENTION = r"""
The same prompt is run twice, clean and with one change; everything after the change is computed
anew. **Averaging** replaces the positional embeddings by the mean of their group of $g$, in
$W_\text{pos}$ or in the stream before a layer (subtract $X^l_n$, measured on one repeated token
without a start token, and add its group's mean).
**Blinding** cuts the attention from every $k$-th position to its predecessor: after the softmax it
is set to zero and not shared out again; before it, the rest of the row takes its share. **Moving**
gives a row's attention to chosen keys: after the softmax in equal parts; before it by raising their
scores above the row's largest. **Switching off** sets a head's output to zero; **removing** sets
token or positional embeddings to zero (rotary models: every token is rotated as at position 0).
Effects: change of loss $-\log p$,
$\mathrm{KL}(p_\text{clean} \| p_\text{changed})$ of the next-token distribution, in nats.
"""

HELIX = Explanation(
    "**How to read this.** Each point is one position, drawn on the first three principal "
    "components of the stream before the chosen layer; neighbours are joined. In GPT-2 small the "
    "positions draw a helix. Drag to turn it; narrow the range of positions to look closer. Green "
    "diamonds are averages of neighbouring positions: where they fall towards the axis, averaging "
    "takes away what tells neighbours apart.",
    _EXTENDED + "\nThe components are those of all positions, whatever range is drawn." + _SOURCE,
)

MORPH = Explanation(
    "**How to read this.** The same curve, layer after layer, each on its own components (signs "
    "agree with the layer before) and in units of its own size. Press play, or move the "
    "slider below the figure.",
    _EXTENDED + _SOURCE,
)

VARIANCE = Explanation(
    "**How to read this.** The share of the variance over positions that the first components "
    "hold, for every layer. The fewer are needed, the more the positions lie on a curve in few "
    "dimensions.",
    _EXTENDED + _SOURCE,
)

ANGLES = Explanation(
    "**How to read this.** The largest canonical angle between the top-k subspaces of two layers: "
    "0° where one lies in the other, 90° where they have a direction with nothing in common. "
    "Hover for all k angles. Left in the residual stream (which directions hold position), right "
    "in position space (which functions of the position are held).",
    r"""
Canonical angles are $\arccos$ of the singular values of $U^\top V$. **Residual stream** (right
singular vectors): the post's prose. **Position space** (left singular vectors of the uncentred
$W_\text{pos}$, layer 0, and of each later layer's normed input): the post's code.
"""
    + _SOURCE,
)

SHAPE = Explanation(
    "**How to read this.** *Far from 0*: the share of entries of $X^l$ beyond the chosen multiple "
    "of their root mean square; the post finds about a third as many in later layers as in "
    "$W_\\text{pos}$. *Spread*: how much one prompt's embeddings differ from the mean, "
    "relative to the mean; over repeated tokens it is small where the choice of token hardly "
    "matters, over texts it is mostly their content.",
    _EXTENDED + _SOURCE,
)

TABLE = Explanation(
    "**How to read this.** One row per head. *Second / largest*: the second-largest diagonal of "
    "the mean attention over the largest; near 0 the head does one thing only. *Contrast*: by how "
    "much the mean raw score at offset 0 (own token) or 1 (previous token) differs from the "
    "straight line through its neighbours: negative is a dark diagonal, positive a bright one. "
    "*Kind*: by which part the previous token's score beats the own token's. Click a row to select "
    "the head everywhere.",
    r"""
$P(k)$ is the mean of $A(n, n-k)$ over texts and $n$, the start token left out. A head is loosely a
previous-token head if $P(1)$ is its largest diagonal. The mean raw score $\bar s(k)$ is split into
position (mean query times mean key) and content (the rest). **Kind** (a choice): *no diagonal
stands out* if second / largest is 0.9 or more; for a previous-token head *by position* if position
contributes more to $\bar s(1) - \bar s(0)$; else *negative self-attention* if the content
part dips at $k = 0$, *aggregator* if it peaks at $k = 1$ beyond layer 0.
"""
    + _SOURCE,
)

PROFILE = Explanation(
    "**How to read this.** The mean attention to the token k places back, over all texts and "
    "positions; the band is one standard error. A clean previous-token head has nearly all of it "
    "at k = 1.",
    r"$P(k) = \mathbb{E}_{\text{text},\,n}\,A(n, n-k)$, the start token's row and column left out."
    + _SOURCE,
)

SCORES = Explanation(
    "**How to read this.** The mean raw score near the main diagonal, before the mask, so that "
    "later tokens (right) have one too; dotted, what position alone makes of it. A dip at "
    "the own token is negative self-attention; a peak one token back is the mark of an "
    "aggregator. The dashed line joins the neighbours on both sides, against which dip and peak "
    "are measured.",
    r"$\bar s(k) = \mathbb{E}_{\text{text},\,n}\,s(n, n-k)$; contrasts at $k = 0$ and $k = 1$ "
    r"against the line through $k = -1$ and $k = 2$." + _SOURCE,
)

TANGENT = Explanation(
    "**How to read this.** The solid line is the score by position alone, around the query; it is "
    "the sum of what the head reads along the helix' *tangent* (advanced positions score higher), "
    "along its *radius* (near positions score higher), and the rest. Dots are the mean raw scores "
    "of real text at that offset, over all query positions, content and all. Early previous-token "
    "heads of GPT-2 small read the tangent, and a dip at the own token leaves the previous one as "
    "the largest visible score.",
    r"""
$a(n,i) = \text{scale}\; q_n \cdot m_i$ with mean query and mean keys. With $y_i$ the position's
point on the layer's helix (the mean stream, of the texts or of one token repeated), $u$ is the
least-squares solution of $a(n,i) = c + u \cdot y_i$ over all $i$. It is split along the radius
$y_n$, the tangent $y_{n+1} - y_{n-1}$ made orthogonal to it, and the third direction (counted with
the rest in the figure). *Fit* is the $R^2$ of the solution.
"""
    + _SOURCE,
)

STAGES = Explanation(
    "**How to read this.** Left the raw scores of every pair of positions, later keys included; "
    "middle the same without what the mask hides; right the softmax of its rows, the attention. "
    "Colours mean the same for the first two. Above the whole text (attention on a log scale), "
    "below the window that the red square marks; hover for the tokens.",
    r"$s(n,i) = \text{scale}\; q_n \cdot k_i$; masked: $i \le n$ (and within a sliding window); "
    r"$A(n,\cdot) = \mathrm{softmax}_i\, s(n,i)$." + _SOURCE,
)

PATTERNS = Explanation(
    "**How to read this.** The selected head's attention on this prompt: clean, changed, and the "
    "difference (orange: more attention after the change, blue: less).",
    _INTERVENTION + _SOURCE,
)

BARS = Explanation(
    "**How to read this.** What the model expects after the prompt, before and after the change: "
    "the six likeliest tokens of each.",
    _INTERVENTION + _SOURCE,
)

LOSS = Explanation(
    "**How to read this.** Above, how badly each token of the prompt was predicted; below, how far "
    "the whole prediction moved. Peaks show where the change matters.",
    _INTERVENTION + _SOURCE,
)

MASSES = Explanation(
    "**How to read this.** One cell per head: by how much its mean attention to the previous token "
    "on this prompt changed. Click a cell to look at that head.",
    r"Mean $A(n, n-1)$ over the prompt, changed minus clean." + _SOURCE,
)

AVERAGING = Explanation(
    "**How to read this.** The loss on windows of the corpus when positions are averaged in groups "
    "of growing size; bars are one standard error of the difference from the clean run, paired "
    "over windows. GPT-2 small hardly minds groups of 5 to 20.",
    _INTERVENTION + _SOURCE,
)
