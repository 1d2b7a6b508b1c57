"""Security headers on every response of the server, whatever answers.

The page loads its own files, connects to its own server, and imports the components' scripts from
blobs; nothing else is allowed. Styles may stand inline: Streamlit and Plotly write them into
elements. Its inline scripts are allowed by their hashes, and WebAssembly, in which it does
its 64-bit arithmetic; ``eval`` is not.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poskernel_core.common.errors import BadRequest
from serving.page import INLINE, page_served

__all__ = ["SecurityHeaders", "security_headers"]

ANCESTORS = "POSKERNEL_FRAME_ANCESTORS"
STARTS = ("http.response.start", "websocket.http.response.start")
SOURCE = re.compile(r"'self'|'none'|\*|[\w.*:/\[\]-]+")
UNUSED = (
    "accelerometer", "browsing-topics", "camera", "display-capture", "geolocation", "gyroscope",
    "magnetometer", "microphone", "midi", "payment", "publickey-credentials-get", "serial", "usb",
)  # fmt: skip


class SecurityHeaders:
    """Middleware that sets headers on every response, also to a web socket that is refused."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] in STARTS:
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, with_headers)


def security_headers() -> dict[str, str]:
    """Return the headers; who may frame the app is read from ``POSKERNEL_FRAME_ANCESTORS``.

    Raises:
        BadRequest: the variable holds anything but sources, such as ``'self' https://lab.org``.
    """
    ancestors = _ancestors()
    policy = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", "blob:", "'wasm-unsafe-eval'", *_inline_scripts()]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": ancestors,
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Permissions-Policy": ", ".join(f"{name}=()" for name in UNUSED),
    }
    # Older browsers know two cases only; a list of hosts cannot be said to them.
    older = {"'self'": "SAMEORIGIN", "'none'": "DENY"}.get(ancestors)
    return headers | ({"X-Frame-Options": older} if older else {})


def _ancestors() -> str:
    named = os.environ.get(ANCESTORS, "").split() or ["'self'"]
    wrong = [each for each in named if not SOURCE.fullmatch(each)]
    if wrong:
        raise BadRequest(
            f"Expected {ANCESTORS} to be 'self', 'none' or hosts such as https://lab.org with "
            f"spaces between them, got {wrong[0]!r}."
        )
    return " ".join(named)


def _inline_scripts() -> list[str]:
    """Return the hashes of the scripts inside the page that is served."""
    scripts = INLINE.findall(page_served())
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
