"""Serve Streamlit's page with our script (``page.js``) and style at the address of every page.

The style is there before anything is drawn, so that nothing moves when it arrives.

The script sets the server's address. Without it, Streamlit's page tries ``/helix/_stcore/health``
before ``/_stcore/health``, since the server might run under that path. All pages are at one level,
so the server's address is the parent folder of the page, and an address with a slash at its end
leads to the page. The script also keeps the browser's history clean.
"""

import re
from functools import cache
from pathlib import Path

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from streamlit import file_util

from pages import FIRST
from pages.shared.look.component import SCRIPTS

INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
PAGE = re.compile(r"/[^/.]*")
"""The path of a page; files have a dot in their name, or are in a subfolder."""


IMPORTED = re.compile(r'from"\./([\w.-]+\.js)"')
WIDGETS = (
    "BidiComponent",
    "Selectbox",
    "Slider",
    "ButtonGroup",
    "Button",
    "Multiselect",
    "Checkbox",
    "TextInput",
)
"""Parts of Streamlit that most pages need. Without asking for them, the browser would fetch each
after its first use, and the page would move when it arrives."""


@cache
def page_served() -> str:
    """Return Streamlit's HTML page with our script, and with our style after Streamlit's own."""
    text = Path(file_util.get_static_dir(), "index.html").read_text("utf-8")
    script, style = (
        Path(__file__).with_name(name).read_text("utf-8") for name in ("page.js", "style.css")
    )
    text = text.replace("<script>", f"<script>{script}</script>\n    <script>", 1)
    return text.replace("</body>", f"<style>{style}</style>\n  </body>", 1)


@cache
def page_with_scripts() -> str:
    """Return it with what is fetched early; our components are there once a server has started."""
    text = page_served()
    early = (
        *(f"static/js/{name}" for name in _widgets(text)),
        *(f"parts/{name}" for name in SCRIPTS),
    )
    links = (f'<link rel="modulepreload" crossorigin href="./{path}">' for path in early)
    return text.replace("</head>", f"{''.join(links)}</head>", 1)


def _widgets(text: str) -> list[str]:
    """Return the scripts of the usual widgets, and what they import, but for those of the page."""
    folder = Path(file_util.get_static_dir(), "static", "js")
    waiting = [file.name for name in WIDGETS for file in folder.glob(f"{name}.*.js")]
    scripts: dict[str, None] = {}
    while waiting:
        name = waiting.pop()
        if name not in scripts and name not in text:
            scripts[name] = None
            waiting += IMPORTED.findall((folder / name).read_text("utf-8"))
    return [*scripts]


def page_routes() -> list[BaseRoute]:
    """Return the routes of all pages; they take precedence over Streamlit's."""
    register_url_convertor("page", _Page())
    return [
        Route(f"/{FIRST}", _forward),  # Streamlit knows its first page by the root alone
        Route("/{name:page}/", _forward),
        *(Route(path, _answer) for path in ("/", "/{name:page}")),
    ]


async def _answer(request: Request) -> Response:
    return HTMLResponse(page_with_scripts(), headers={"Cache-Control": "no-cache"})


async def _forward(request: Request) -> Response:
    name, query = request.path_params.get("name", FIRST), request.url.query
    up = "../" if "name" in request.path_params else "./"
    return RedirectResponse(f"{up}{name if name != FIRST else ''}{query and '?'}{query}")


class _Page(Convertor[str]):
    regex = "[^/.]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value
