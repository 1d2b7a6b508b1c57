"""Who asked for what, one line of JSON each: a request when it is answered, a session when it ends.

A line holds the path without the query, which may be a text that somebody typed. Nothing that a
visitor sends can make a line of its own: whatever is not plain ASCII is written as an escape. The
file is only added to, and opened anew where it was moved away or removed, as log rotation does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poskernel_core.common.errors import BadRequest
from serving.visitors import address_of, shortened

__all__ = ["AccessLog", "open_log"]

LOGGER = "poskernel.access"
LONGEST_PATH = 200
LONGEST_METHOD = 16
PRIVATE = re.compile(r"(.*/_stcore/upload_file)/.*", re.DOTALL)
"""The rest of such a path is the number of a session, by which its files are found."""

ACCEPTED, FAILED, CLOSED = 101, 500, 403


class AccessLog:
    """Middleware that writes a line when a request or a session has ended, in whatever way.

    Args:
        app: what answers.
        log: where the lines go.
        short: whether addresses are shortened, to a network of 24 bits (IPv6: 48).
    """

    def __init__(self, app: ASGIApp, log: logging.Logger, short: bool) -> None:
        self._app = app
        self._log = log
        self._short = short

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one session to its end."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        traffic = _Traffic(receive, send)
        try:
            await self._app(scope, traffic.receive, traffic.send)
        except Exception:
            traffic.status = traffic.status or FAILED
            raise
        finally:
            self._log.info(json.dumps(self._line(scope, traffic)))

    def _line(self, scope: Scope, traffic: _Traffic) -> dict[str, Any]:
        address = address_of(scope)
        passed = time.monotonic() - traffic.began
        session = scope["type"] == "websocket"
        kind = {"event": "session"} if session else {"event": "request"}
        method = {} if session else {"method": scope["method"][:LONGEST_METHOD]}
        took = {"seconds": round(passed, 3)} if session else {"ms": round(passed * 1000, 1)}
        return {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **kind,
            "visitor": shortened(address) if self._short else address,
            **method,
            "path": PRIVATE.sub(r"\1", scope["path"])[:LONGEST_PATH],
            "status": traffic.status,
            "bytes": traffic.sent,
            **({"received": traffic.received} if session else {}),
            **took,
        }


class _Traffic:
    """What goes to and fro, counted: the status of the answer, bytes of content either way.

    The status is None where whoever asked was gone before there was one.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.began = time.monotonic()
        self.status: int | None = None
        self.sent = 0
        self.received = 0

    async def receive(self) -> Message:
        """Hand on what the visitor sent."""
        message = await self._receive()
        if message["type"] == "websocket.receive":
            self.received += _length(message)
        return message

    async def send(self, message: Message) -> None:
        """Hand on what the visitor is sent."""
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = message["status"]
            case "http.response.body" | "websocket.http.response.body":
                self.sent += len(message.get("body", b""))
            case "websocket.accept":
                self.status = ACCEPTED
            case "websocket.send":
                self.sent += _length(message)
            case "websocket.close" if self.status is None:
                self.status = CLOSED
        await self._send(message)


def open_log(name: str) -> logging.Logger:
    """Return a log that writes to a file, or to standard output where the name is ``-``.

    Raises:
        BadRequest: the file cannot be written.
    """
    log = logging.getLogger(LOGGER)
    log.setLevel(logging.INFO)
    log.propagate = False
    for old in list(log.handlers):
        log.removeHandler(old)
        with contextlib.suppress(OSError):
            old.close()
    log.addHandler(_Quiet(sys.stdout) if name == "-" else _file(Path(name)))
    return log


class _Quiet(logging.StreamHandler):  # type: ignore[type-arg]
    """A line that cannot be written is lost, and the visitor answered; the host is told once."""

    told = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            super().emit(record)
        except OSError:  # the file was moved away, and cannot be opened anew
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Say once that lines are lost."""
        if not self.told:
            self.told = True
            reason = sys.exception()
            print(f"The access log cannot be written ({reason}): lines are lost.", file=sys.stderr)


class _File(_Quiet, WatchedFileHandler):
    """A file that may be moved away."""


def _file(place: Path) -> logging.Handler:
    try:
        return _File(place, encoding="ascii")
    except OSError as error:
        raise BadRequest(
            f"Expected POSKERNEL_ACCESS_LOG to be a file that can be written, or -, got "
            f"{str(place)!r} ({error.strerror})."
        ) from error


def _length(message: Message) -> int:
    text = message.get("text")
    return len(text.encode()) if text else len(message.get("bytes") or b"")
