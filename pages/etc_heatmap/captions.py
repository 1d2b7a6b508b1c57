"""The words for the landing page's figures."""

from pages.shared.cards.explained import PICK, explained

GRID = explained(
    "etc",
    "One cell per head, layers downwards. Dark blue: it attends to few tokens (local: most of "
    "its kernel lies in the last 10, unless changed under «Kinds»). Magenta: its attention decays "
    "slowly. Yellow: it treats all positions nearly alike (uniform). The mark in a cell is its "
    f"kind; ★ marks a head with a known function. {PICK}",
    "etc",
    "kind",
)
