"""The words for the landing page's figures."""

from pages.shared.cards.explained import explained

GRID = explained(
    "etc",
    "One cell per head, layers downwards. Dark blue: the head looks at few tokens (local: most of "
    "its kernel lies in the last 10, unless changed under «Kinds»). Magenta: its attention decays "
    "slowly. Yellow: it treats all positions nearly alike (uniform). Click a cell, or walk with "
    "the arrow keys and press Enter, and that head is shown everywhere. The mark in a cell repeats "
    "its kind; ★ is a head whose function is known.",
    "etc",
    "kind",
)
