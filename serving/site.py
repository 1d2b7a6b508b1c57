"""``/docs``: the documentation's site, if it was built (``make docs``) or came with the wheel."""

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from poskernel_core.server import site
from serving.page import INLINE


def site_routes() -> list[BaseRoute]:
    """Return the route of the site; none if there is no site."""
    if site() is None:
        return []
    return [Mount("/docs", StaticFiles(directory=site(), html=True))]


def site_scripts() -> frozenset[str]:
    """Return the scripts that are written into the pages of the site."""
    folder = site()
    pages = folder.rglob("*.html") if folder else ()
    return frozenset(each for page in pages for each in INLINE.findall(page.read_text("utf-8")))
