"""The page that is served at every address of the app: Streamlit's, which also knows its server.

Without that Streamlit's page tries ``/helix/_stcore/health`` before ``/_stcore/health`` when it is
opened at ``/helix``, as the server might lie under that path: two errors in the browser's log, and
a way to the server and back. Pages lie at one level, so the server's address is the folder of the
page's.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import streamlit
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["INLINE", "KnownServer", "page_served"]

INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
SCRIPT = Path(__file__).with_name("page.js")
PAGE = re.compile(r"/[^/.]*")
"""The path of a page; files have a dot in their name, or lie deeper."""


@cache
def page_served() -> str:
    """Return Streamlit's page with a script that says where the server is."""
    text = (Path(streamlit.__file__).parent / "static" / "index.html").read_text("utf-8")
    script = f"<script>{SCRIPT.read_text('utf-8')}</script>"
    return text.replace("<script>", f"{script}\n    <script>", 1)


class KnownServer:
    """Middleware that serves our page in place of Streamlit's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not PAGE.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return

        ours = False

        async def with_script(message: Message) -> None:
            nonlocal ours
            if message["type"] == "http.response.start":
                ours = _is_page(message)
                await send(_of_our_length(message) if ours else message)
            elif not ours:
                await send(message)
            elif not message.get("more_body"):
                body = b"" if scope["method"] == "HEAD" else page_served().encode()
                await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, with_script)


def _is_page(message: Message) -> bool:
    kind = MutableHeaders(raw=message["headers"]).get("content-type", "")
    return message["status"] == 200 and kind.startswith("text/html")


def _of_our_length(message: Message) -> dict[str, Any]:
    headers = MutableHeaders(raw=list(message["headers"]))
    for name in ("content-encoding", "etag", "last-modified", "accept-ranges"):
        if name in headers:
            del headers[name]
    headers["content-length"] = str(len(page_served().encode()))
    return {**message, "headers": headers.raw}
