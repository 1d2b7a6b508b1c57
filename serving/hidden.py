"""Streamlit's own numbers about the server are not for visitors: ours are told elsewhere."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Hidden"]

HIDDEN = "/_stcore/metrics"


class Hidden:
    """Middleware for which Streamlit's metrics do not exist."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith(HIDDEN):
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
