"""The words beside a figure whose formula the definitions state: they are written once."""

from __future__ import annotations

from pages.parts.cards import Explanation
from poskernel_core.methods import method_of

__all__ = ["displayed", "explained"]


def explained(question: str, reading: str) -> Explanation:
    """Return how to read a figure, with formula, choices, limits and source of its question."""
    method = method_of(question)
    return Explanation(
        f"**How to read this.** {reading}",
        f"{method.formula}\n\n**Choices.** {method.choices}\n\n**Limits.** {method.limits}\n\n"
        f"Source: {method.source}",
    )


def displayed(formula: str) -> str:
    """Return a formula as a paragraph of its own, in the one way that every Markdown reader sets.

    Dollar signs stand alone on their lines: beside a formula of two lines they are shown as text.
    """
    return f"\n\n$$\n{formula}\n$$\n\n"
