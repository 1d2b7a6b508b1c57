"""The words for a figure: how to read it, its definition, and where the documentation has more."""

from dataclasses import dataclass

from pages.shared.cards.plain import capital
from poskernel_core.analyses import find
from poskernel_core.analyses.definitions import SECTIONS, Method, method_of, values_of
from poskernel_core.analyses.views import PICK as PICK
from poskernel_core.server import site


@dataclass(frozen=True)
class Explanation:
    """How to read a figure, and its formula and source."""

    reading: str
    formula: str


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


def page_on(analysis: str) -> str | None:
    """Return the address of the documentation's page on a question; None if there is none.

    That is the concept of its topic or with its name, or else its page of the reference.
    """
    folder = site()
    topic = type(find(analysis)).__module__.split(".")[-2:][0].replace("_", "-")
    concepts = (f"concepts/{name}.html" for name in (topic, analysis))
    paths = (*concepts, f"reference/questions/{analysis}.html")
    return next((f"docs/{path}" for path in paths if folder and (folder / path).is_file()), None)
