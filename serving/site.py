"""``/docs``: the documentation's site, if it was built (``make docs``) or came with the wheel.

In a clone without it: the files that it is built from, as plain pages.
"""

import html
import re
from pathlib import Path

from starlette.requests import Request
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

from poskernel_core.server import script, site
from serving.page import INLINE

ANY = 'href="http://localhost:8501/'
"""How the documentation links to the reader's dashboard."""


BUILT = (
    "The documentation is not built here. In a clone, 'make docs' builds it, with pictures and "
    "search: start the server again afterwards."
)
PLAIN = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · PosKernel</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto }}
  pre {{ font-size: 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere }}
</style>
<p><em>{built}</em> <a href="{top}index.html">Contents</a></p>
<pre>{text}</pre>
</html>
"""
LINK = re.compile(r"\(([\w./-]+\.md)(#[\w-]*)?\)")


class _Site(StaticFiles):
    """The site; its links to the reader's dashboard lead to this one."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if isinstance(response, RedirectResponse):  # a folder without its slash
            return RedirectResponse(f"{Path(path).name}/")
        if not isinstance(response, FileResponse) or Path(response.path).suffix != ".html":
            return response
        up = "../" * scope["path"].removeprefix(scope["root_path"]).count("/")
        text = Path(response.path).read_text("utf-8").replace(ANY, f'href="{up}')
        return HTMLResponse(text, response.status_code)


def site_routes() -> list[BaseRoute]:
    """Return the routes of the site; if there is none, of the files that it is built from."""
    redirect = Route("/docs", lambda _: RedirectResponse("docs/"))
    if site() is None:
        return [redirect, Route("/docs/{path:path}", _plain)]
    return [redirect, Mount("/docs", _Site(directory=site(), html=True))]


def _plain(request: Request) -> Response:
    """Return a file of ``docs`` as it is written, under the name of its page; links lead on."""
    folder, path = (script().parent / "docs").resolve(), request.path_params["path"] or "index"
    file = (folder / path).with_suffix(".md").resolve()
    if not file.is_relative_to(folder) or not file.is_file():
        return PlainTextResponse(f"{BUILT}\n", 404)
    text = LINK.sub(r'(<a href="\1">\1</a>\2)', html.escape(file.read_text("utf-8"), quote=False))
    top = "../" * path.count("/")
    return HTMLResponse(PLAIN.format(title=html.escape(file.stem), built=BUILT, top=top, text=text))


def site_scripts() -> frozenset[str]:
    """Return the scripts that are written into the pages of the site."""
    folder = site()
    pages = folder.rglob("*.html") if folder else ()
    return frozenset(source for page in pages for source in INLINE.findall(page.read_text("utf-8")))
