"""What a page declares: its title, its questions, and what it needs."""

from dataclasses import dataclass
from typing import Final

LOG_AXES: Final = ("offset of local heads", "offset", "attention")
"""The axes of a curve that can be logarithmic."""


@dataclass(frozen=True)
class Screenshot:
    """What a page's picture in the documentation shows.

    Attributes:
        chosen: the query of the page's address.
        last: the name of the last card in it; empty: the whole page.
    """

    chosen: str = ""
    last: str = ""


@dataclass(frozen=True)
class Place:
    """A page's declaration, its ``PLACE``; ``page(selection)`` beside it draws the page.

    Attributes:
        title: its name in the navigation, and its heading.
        about: what the page is about, in one line of Markdown.
        questions: the names of the questions that only this page shows. A question that no page
            declares is shown on the landing page.
        picture: what its picture shows; None if no bundled model fills the page.
        needs: what it requires of a model, by its name in ``lending``.
    """

    title: str
    about: str
    questions: tuple[str, ...] = ()
    picture: Screenshot | None = Screenshot()
    needs: str = ""
