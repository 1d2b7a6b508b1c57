"""Serve below a base path, such as ``/heads`` (``STREAMLIT_SERVER_BASE_URL_PATH=heads``).

Pages ask for their parts relative to their own address, so nothing inside the server needs to know
the path: it is removed from each request. A proxy may therefore pass it on or remove it.
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config


def take_base() -> str:
    """Return the base path, such as ``/heads``, or an empty string; take it from Streamlit."""
    base = config.get_option("server.baseUrlPath").strip("/")
    config.set_option("server.baseUrlPath", "")
    return base and f"/{base}"


def below(app: ASGIApp, base: str) -> ASGIApp:
    """Wrap an app as Starlette middleware that removes a base path from the path of requests."""
    if not base:
        return app

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == base and scope["type"] == "http":
            last, query = base.rpartition("/")[2], Request(scope).url.query
            await RedirectResponse(f"{last}/{query and '?'}{query}")(scope, receive, send)
            return
        if path.startswith(f"{base}/"):
            scope = {**scope, "path": path.removeprefix(base)}
        await app(scope, receive, send)

    return served
