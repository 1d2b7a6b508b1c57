"""Asking an ASGI app by hand: what it is handed, and what it says; a port for a real one."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.support.alone import run_alone

STREAM = "/_stcore/stream"


def scope(
    path: str = "/", kind: str = "http", client: str | None = "203.0.113.7", **more: Any
) -> dict[str, Any]:
    """What a server hands to an app; headers as a table."""
    headers = more.pop("headers", {})
    return {
        "type": kind,
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), str(text).encode()) for name, text in headers.items()],
        "client": (client, 5000) if client is not None else None,
        "extensions": {"websocket.http.response": {}} if kind == "websocket" else {},
        **more,
    }


@dataclass
class Wire:
    """What the app may receive, in turn, and then nothing more; what it sent."""

    inbox: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)

    async def receive(self) -> dict[str, Any]:
        """Return the next message; wait without end where there is none."""
        if not self.inbox:
            await asyncio.Event().wait()
        return self.inbox.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        """Keep what was sent."""
        self.sent.append(message)

    @property
    def status(self) -> int:
        """The status of the answer."""
        return next(each["status"] for each in self.sent if "status" in each)

    @property
    def body(self) -> str:
        """The answer."""
        return b"".join(each.get("body", b"") for each in self.sent).decode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        found = next(each["headers"] for each in self.sent if "headers" in each)
        return {name.decode().lower(): text.decode() for name, text in found}


def ask(app: Any, asked: dict[str, Any], *inbox: dict[str, Any]) -> Wire:
    """Hand one request to an app, and return what came of it."""
    first = {"type": "http.request" if asked["type"] == "http" else "websocket.connect"}
    wire = Wire([first, *inbox])
    run_alone(app(asked, wire.receive, wire.send))
    return wire
