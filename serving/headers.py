"""Security headers for every response of the server.

The page may load its own files, connect to its own server, and import the components' scripts from
blobs, and nothing else. Inline styles are allowed, since Streamlit and Plotly write them into
elements. Inline scripts of Streamlit and of the documentation are allowed by their hashes.
WebAssembly is allowed, because Streamlit uses it for 64-bit arithmetic; ``eval`` is not.
"""

import base64
import hashlib
import os
import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poskernel_core.common.errors import BadRequest
from serving.page import INLINE, page_served
from serving.site import site_scripts

ANCESTORS = "POSKERNEL_FRAME_ANCESTORS"
SOURCE = re.compile(r"'self'|'none'|\*|[\w.*:/\[\]-]+")
UNUSED = (
    "accelerometer", "browsing-topics", "camera", "display-capture", "geolocation", "gyroscope",
    "magnetometer", "microphone", "midi", "payment", "publickey-credentials-get", "serial", "usb",
)  # fmt: skip

KEPT = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Encoding": "gzip"}
"""Of compressed files that never change: the browser keeps them."""


def with_headers(app: ASGIApp, headers: dict[str, str]) -> ASGIApp:
    """Wrap an app as Starlette middleware that sets headers on every response.

    This includes the response to a refused web socket.
    """

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await app(scope, receive, send_with_headers)

    return served


def security_headers() -> dict[str, str]:
    """Return the headers; ``POSKERNEL_FRAME_ANCESTORS`` says who may frame the app.

    Raises:
        BadRequest: the variable is not a list of sources, such as ``'self' https://lab.org``.
    """
    ancestors = os.environ.get(ANCESTORS, "").split() or ["'self'"]
    wrong = [source for source in ancestors if not SOURCE.fullmatch(source)]
    if wrong:
        raise BadRequest(
            f"Expected {ANCESTORS} to be 'self', 'none' or hosts such as https://lab.org with "
            f"spaces between them, got {wrong[0]!r}."
        )
    inline = [*INLINE.findall(page_served()), *sorted(site_scripts())]
    scripts = [hashlib.sha256(script.encode()).digest() for script in inline]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in scripts)
    policy = {
        "default-src": "'self'",
        "script-src": f"'self' blob: 'wasm-unsafe-eval' {hashes}",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": " ".join(ancestors),
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Permissions-Policy": ", ".join(f"{name}=()" for name in UNUSED),
    }
