"""What the browser tests of contextual heads and neurons share: wide pages, rows of tables."""

from collections.abc import Callable, Iterable
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Position, expect

from tests.support.server import Server
from tests.support.visit import settle, table, visit

FEW = {"context": 128, "firstwindows": 8}
ROW = 35


def opens(
    page: Page, server: Server, path: str, *, width: int = 0, ready: str = "", **given: object
) -> Callable[..., Page]:
    """What opens a page with the parameters ``given`` and its own.

    ``width`` is the window's, where every column is to be in view; ``ready`` is the figure that is
    waited for.
    """
    if width:
        page.set_viewport_size({"width": width, "height": 1000})

    def go(**parameters: object) -> Page:
        visit(page, server.link(path, **{**given, **parameters}))
        if ready:
            drawn(page, [ready])
        return page

    return go


def wide(page: Page, server: Server, path: str) -> Callable[..., Page]:
    """What opens a page, so wide that every column is in view, on few windows."""
    return opens(page, server, path, width=1900, **FEW)


def drawn(page: Page, figures: Iterable[str]) -> None:
    """Wait for all figures."""
    for figure in figures:
        expect(page.locator(f".st-key-figure-{figure} .main-svg").first).to_be_visible()


def column(page: Page, key: str, name: str) -> list[str]:
    """What a column of a table shows, in the rows in view."""
    found = table(page, key)
    expect(found.locator("th").get_by_text(name, exact=True)).to_be_attached()
    place = found.locator("th").all_text_contents().index(name)
    return [*map(cell_text, found.locator(f"tbody td:nth-child({place + 1})").all_text_contents())]


def cell_text(text: str) -> str:
    """What a cell shows: the name of the head, where it holds the address of its page."""
    return parse_qs(urlsplit(text).query)["head"][0] if text.startswith("head?") else text


def click_name(page: Page, key: str, row: int) -> Page:
    """Click on the name of a head, once the pointer over it is a hand; the page that it opens."""
    place = page.locator(f".st-key-{key} canvas").first
    spot: Position = {"x": 52, "y": 36 + (row + 0.5) * ROW}
    place.hover(position=spot, force=True)
    expect(place).to_have_css("cursor", "pointer")
    with page.context.expect_page() as opened:
        place.click(position=spot, force=True)
    settle(opened.value)
    return opened.value


def click_row(page: Page, key: str, row: int) -> None:
    """Click on a row of a table, by its place from above."""
    place = page.locator(f".st-key-{key} canvas").first
    place.click(position={"x": 17, "y": 36 + (row + 0.5) * ROW}, force=True)
    settle(page)
