"""The words for a figure: how to read it, and the definition from the code's docstrings."""

from pages.shared.cards.card import Explanation
from pages.shared.cards.plain import capital
from poskernel_core.analyses.definitions import SECTIONS, Method, method_of, values_of
from poskernel_core.analyses.views import PICK as PICK


def explained(analysis: str, reading: str, *values: str) -> Explanation:
    """Return how to read a figure, and the definition of its analysis.

    ``values`` are the names of the values drawn; their meanings stand before the formula.
    """
    method = method_of(analysis)
    meanings = "\n".join(f"- {meaning}" for meaning in values_of(analysis, *values))
    parts = [f"{method.summary} {method.about}", meanings, *sections(method)]
    return Explanation(f"**How to read this.** {reading}", "\n\n".join(filter(None, parts)))


def sections(method: Method) -> list[str]:
    """Return formula, choices, limits and source of a definition as paragraphs of Markdown."""
    texts = {name: getattr(method, name.lower()) for name in SECTIONS}
    return [f"**{name}.** {capital(text)}" for name, text in texts.items()]
