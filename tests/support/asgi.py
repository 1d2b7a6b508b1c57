"""What a server hands to an app."""

from typing import Any

STREAM = "/_stcore/stream"


def scope(
    path: str = "/", kind: str = "http", client: str | None = "203.0.113.7", **headers: str
) -> dict[str, Any]:
    """A request, or with the kind ``websocket`` one to open a web socket.

    Names of headers have ``_`` for ``-``.
    """
    return {
        "type": kind,
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").lower().encode(), text.encode())
            for name, text in headers.items()
        ],
        "client": (client, 5000) if client is not None else None,
    }
