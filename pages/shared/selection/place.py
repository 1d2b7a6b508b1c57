"""What a page declares: its title, its questions, and what it needs."""

from dataclasses import dataclass
from typing import Final

LOG_AXES: Final = ("offset", "attention")
"""The axes of a curve that can be logarithmic."""


@dataclass(frozen=True)
class Place:
    """A page's declaration, its ``PLACE``; ``page(selection)`` beside it draws the page.

    Attributes:
        title: its name in the navigation, and its heading.
        about: what the page is about, in one line of Markdown.
        questions: the names of the questions that only this page shows. A question that no page
            declares is shown on the landing page.
        needs: what it requires of a model, by its name in ``lending``.
        stored: whether it shows what is stored of a model that lacks that.
    """

    title: str
    about: str
    questions: tuple[str, ...] = ()
    needs: str = ""
    stored: bool = False
