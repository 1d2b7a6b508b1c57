"""Links to pages with the head, the run and the pins of this one."""

from typing import Final
from urllib.parse import urlencode

from pages.shared.choices.choices import chosen, shared_address
from poskernel_core.analyses.comparison.pins import Pin
from poskernel_core.models import catalog

OVERVIEW: Final = "Overview"
"""The title of the page with everything about one head."""


def page_address(page: str, cell: str = "", **more: str) -> str:
    """Return the address of a page for a head, by default the selected one.

    ``more`` are parameters of that page; an empty one removes a shared parameter.
    """
    named = {"head": cell or str(chosen("head", ""))}
    query = {key: value for key, value in (shared_address() | named | more).items() if value}
    return f"{page}?{urlencode(query, doseq=True)}"


def page_link(page: str, title: str) -> str:
    """Return a link to a page in Markdown."""
    return f"[{title}]({page_address(page)})"


def head_link(cell: str, words: str = "") -> str:
    """Return a head's name as a link, in Markdown, to its page «Overview»."""
    return f"[{words or cell}]({page_address('head', cell)})"


def pin_address(pin: Pin) -> str:
    """Return the address of a pinned head's page in its own run; the head comes last."""
    pins = {key: value[0] for key, value in shared_address().items() if key == "pins"}
    revision = "checkpoint" if catalog.is_local(pin.model) else "revision"
    named = {
        "model": pin.model,
        revision: pin.revision or "",
        "corpus": pin.corpus,
        "context": "" if pin.context is None else str(pin.context),
        "windows": str(pin.windows),
        "start": str(pin.start).lower(),
        "dtype": pin.dtype,
        "head": pin.cell,
    }
    query = urlencode(pins | {key: value for key, value in named.items() if value})
    return f"head?{query}"


def pin_link(pin: Pin, words: str = "") -> str:
    """Return a pinned head's name as a link, in Markdown, to its page in its own run."""
    return f"[{words or pin.cell}]({pin_address(pin)})"
