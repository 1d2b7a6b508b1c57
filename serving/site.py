"""``/docs``: the documentation's site, if it was built (``make docs``) or came with the wheel."""

from pathlib import Path

from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from poskernel_core.server import site
from serving.page import INLINE

ANY = 'href="http://localhost:8501/'
"""How the documentation links to the reader's dashboard."""


NONE = (
    "The documentation is not built here. In a clone, 'make docs' builds it: start the server "
    "again afterwards. Its text is in the folder 'docs', and begins with tutorial.md.\n"
)
PATHS = ("/docs", "/docs/{rest:path}")


class _Site(StaticFiles):
    """The site; its links to the reader's dashboard lead to this one."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        found = await super().get_response(path, scope)
        if isinstance(found, RedirectResponse):  # a folder without its slash
            return RedirectResponse(f"{Path(path).name}/")
        if not isinstance(found, FileResponse) or Path(found.path).suffix != ".html":
            return found
        up = "../" * scope["path"].removeprefix(scope["root_path"]).count("/")
        text = Path(found.path).read_text("utf-8").replace(ANY, f'href="{up}')
        return HTMLResponse(text, found.status_code)


def site_routes() -> list[BaseRoute]:
    """Return the routes of the site; if there is none, one that says how it is built."""
    if site() is None:
        return [Route(path, lambda _: PlainTextResponse(NONE, 404)) for path in PATHS]
    whole = Route("/docs", lambda _: RedirectResponse("docs/"))
    return [whole, Mount("/docs", _Site(directory=site(), html=True))]


def site_scripts() -> frozenset[str]:
    """Return the scripts that are written into the pages of the site."""
    folder = site()
    pages = folder.rglob("*.html") if folder else ()
    return frozenset(each for page in pages for each in INLINE.findall(page.read_text("utf-8")))
