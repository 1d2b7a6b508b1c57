"""Where a page stands in the navigation, and which settings of the sidebar it uses."""

from dataclasses import dataclass
from typing import Final

from pages.shared.selection.head_link import page_address

RANDOM_TOKENS_IDLE: Final = frozenset({"run", "query", "skip"})
"""Settings that change nothing where sequences are random tokens."""


@dataclass(frozen=True)
class Screenshot:
    """What a page's picture in the documentation shows.

    Attributes:
        chosen: what is selected, as the page's address tells it.
        last: the name of the last card in it; empty: the whole page.
    """

    chosen: str = ""
    last: str = ""


@dataclass(frozen=True)
class Place:
    """A page's place: declared on it as ``PLACE``, next to ``page(selection)`` which draws it.

    Attributes:
        title: its name in the navigation, and its heading.
        questions: the names of those that it shows, and that no other page shows; what no page
            declares is shown on the landing page.
        picture: what the picture of it shows; none, where no bundled model fills it.
        idle: settings of the sidebar that change nothing on it; ``run`` is all of a run.
        needs: what of a model it cannot do without, by its name in ``lending``.
    """

    title: str
    questions: tuple[str, ...] = ()
    picture: Screenshot | None = Screenshot()
    idle: frozenset[str] = frozenset()
    needs: str = ""


def page_link(address: str, title: str) -> str:
    """Return a link to another page, in Markdown, with what all pages mean alike."""
    return f"[{title}]({page_address(address)})"
