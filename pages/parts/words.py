"""The explanations beside the figures: how to read them, and the formulas behind them."""

from __future__ import annotations

from pages.parts.cards import Explanation
from pages.parts.explained import displayed

__all__ = ["CURVE", "GRID", "MAP", "MULTIPLES", "SQUARE"]

_KERNEL = (
    r"""
Mean key at each position, over many texts (after the rotary rotation, where there is one):
$m_i = \mathbb{E}_\text{text}[k_i]$. Every score splits exactly into position and content:

"""
    + displayed(
        r"s(n,i) = \underbrace{\text{scale}\; q_n \cdot m_i}_{a(n,i)\;\text{position}} + "
        r"\underbrace{\text{scale}\; q_n \cdot (k_i - m_i)}_{c(n,i)\;\text{content}}"
    )
    + r"""
The **positional kernel** is $K(n,i) = \mathrm{softmax}_i\, a(n,i)$ over the visible keys
$i \ge \text{skip}$: the attention a head would pay if all content were alike.
"""
)

_SOURCE = "\n\nSource: Alex Gibson, *Positional kernels of attention heads* (2025)."

GRID = Explanation(
    "**How to read this.** One cell per head, layers downwards. Dark blue: the head looks at few "
    "tokens (local: most of its kernel lies in the last 10, unless changed under «Kinds»). "
    "Magenta: its attention decays slowly. Yellow: it treats all positions nearly alike (uniform). "
    "Click a cell, or walk with the arrow keys and press Enter, "
    "and that head is shown everywhere. The mark in a cell repeats its kind; ★ is a head whose "
    "function is known.",
    r"""
**Effective token count** of the kernel at query position $n$, in tokens:

"""
    + displayed(r"\mathrm{ETC}(n) = \frac{1}{\sum_i K(n,i)^2}")
    + r"""
It lies between 1 and the number of visible positions; a kernel uniform over $k$ tokens has
$\mathrm{ETC} = k$. **Kinds** (a choice): *local* if at least half of the mass lies in the last 10
tokens; else *uniform* if $\mathrm{ETC} \ge 0.5\,\times$ visible; else *slow decay*. The thresholds
can be changed under «Kinds».
"""
    + _KERNEL
    + _SOURCE,
)

CURVE = Explanation(
    "**How to read this.** How much of its attention the head gives to the token $n - i$ places "
    "back, by position alone. The solid line is the mean over queries, the band holds 10 to 90 % "
    "of them. The dashed line is the attention really observed, content and all: where the two "
    "agree (low *fidelity* distance), position explains what the head does on average.",
    _KERNEL
    + r"""
**Consistency**: mean total-variation distance $\mathrm{TV}(K,K') = \tfrac12 \sum_i |K_i - K'_i|$
between kernels of different queries at the same $n$. **Equivariance**: the same between kernels of
different $n$, aligned by offset and renormalised on their common support. **Fidelity**: TV between
the mean kernel and the mean observed attention, skip applied to both. All lie in $[0, 1]$; lower is
better.
"""
    + _SOURCE,
)

MAP = Explanation(
    "**How to read this.** Each row is one query position, each column a key position; brightness "
    "is the share of attention (log scale, at least a factor of ten). A local head draws a thin "
    "diagonal, a uniform head a filled triangle. If a diagonal band keeps its shape downwards, the "
    "head is translation equivariant. Left the kernel (position alone), in the middle the "
    "attention observed, in the same colours; right their difference: orange where position "
    "promises more than is observed, blue where content adds attention. Its scale reaches at least "
    "a tenth of the largest share, so that small differences stay grey.",
    _KERNEL + _SOURCE,
)

SQUARE = Explanation(
    "**How to read this.** One row of the map, folded like lines of text: the first key is at the "
    "top left, the query itself at the bottom right. It is the view of the first post, where "
    "400 positions make a 20 × 20 square; skipped keys are left blank. Colours are those of the "
    "map: at least a factor of ten, so that a nearly flat row looks flat; right the kernel less "
    "the attention observed.",
    _KERNEL + "\n\nSource: Alex Gibson, *Contextual attention heads in the first layer of GPT-2*.",
)

MULTIPLES = Explanation(
    "**How to read this.** The kernels of all heads of the selected layer at the same query "
    "position, on the same axes. Heads with very different kernels can hardly be in superposition "
    "with each other; heads with similar ones are candidates.",
    _KERNEL + _SOURCE,
)
