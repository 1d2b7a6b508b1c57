"""Admission: limits on sessions and requests, per client and in total.

A session is a page that is open in a browser: a web socket. Requests are pages, uploads and new
sessions. Files (scripts, fonts, pictures) and ``/health`` have a separate, larger limit, so that an
open page always gets its parts. A client is an IPv4 address or an IPv6 /64 network. uvicorn takes
the address from ``X-Forwarded-For`` if it trusts the proxy (``FORWARDED_ALLOW_IPS``). Clients on
this machine are limited only by the total number of sessions, unless a proxy names them.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, inf

from cachetools import TTLCache
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME

from poskernel_core.common.addresses import parsed
from poskernel_core.common.errors import Busy
from poskernel_core.common.settings import Settings
from serving.clients import FORWARDED, client_of, host_of, is_local
from serving.page import PAGE
from serving.problems import Problem

FILES_A_REQUEST = 30
"""Files allowed per request: a browser's first visit makes 5 requests and loads 110 files."""

FILES = re.compile(r"(/[^/]+)?/(static|media|component|_stcore/bidi-components)/.*|(/.*)?/health")
LIMITS = ("sessions", "sessions_each", "requests_each", "files_each")
MINUTE = 60.0
RETRY_AFTER = 30
"""Seconds for ``Retry-After`` when all sessions are in use."""

HTML = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>PosKernel</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto }}
</style>
<h1>PosKernel</h1>
<p>{sentence}</p>
<p><a href="">Try again</a></p>
</html>
"""

LOG = logging.getLogger("uvicorn.error")


class SlidingWindow:
    """Counts events by key over the last minute and drops idle keys. Not thread-safe.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._events: TTLCache[tuple[str, str], deque[float]] = TTLCache(inf, MINUTE, now)

    def __len__(self) -> int:
        """Return the number of keys in memory."""
        return len(self._events)

    def wait(self, key: tuple[str, str], most: int) -> float:
        """Count an event and return 0, or return the seconds to wait if the limit is reached."""
        now, events = self._now(), self._events.get(key, deque())
        while events and events[0] <= now - MINUTE:
            events.popleft()
        if len(events) >= most:
            return events[0] + MINUTE - now
        events.append(now)
        self._events[key] = events
        return 0.0


@dataclass(frozen=True)
class Refusal:
    """The reason why a client is refused.

    Attributes:
        limit: the limit that was reached.
        status: 429 if the client made too many requests, 503 if the server is full.
        sentence: the message.
        retry_after: seconds.
    """

    limit: str
    status: int
    sentence: str
    retry_after: int = RETRY_AFTER

    def response(self, connection: HTTPConnection) -> Response:
        """Return the message: HTML if a browser requests a page, a problem if a program asks."""
        headers = {"Retry-After": str(self.retry_after), "Cache-Control": "no-store"}
        if _wants_page(connection):
            return HTMLResponse(HTML.format(sentence=self.sentence), self.status, headers)
        if connection.scope["path"].startswith(("/api/", "/mcp")):
            problem = Problem(self.status, self.sentence, "", headers, Busy.__name__)
            return problem.response(connection.scope)
        return PlainTextResponse(f"{self.sentence}\n", self.status, headers)


class Admission:
    """Counts sessions and requests, and refuses those over the limits.

    Attributes:
        limits: the settings of the host, with its limits; 0 means no limit.
        sessions: number of open sessions.
        refused: how often each limit was reached.
    """

    def __init__(self, limits: Settings) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter(dict.fromkeys(LIMITS, 0))
        self.sessions = 0
        self._open: Counter[str] = Counter()
        self._recent = SlidingWindow()
        self._warned = False

    def guard(self, app: ASGIApp) -> ASGIApp:
        """Wrap an app as Starlette middleware that refuses requests over the limits."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] not in ("http", "websocket"):
                await app(scope, receive, send)
                return
            self._warn_of_proxy(scope)
            refusal = self.refusal(scope)
            if refusal is not None:
                if scope["type"] == "websocket":
                    await receive()  # websocket.connect
                await refusal.response(HTTPConnection(scope))(scope, receive, send)
            elif scope["type"] == "http":
                await app(scope, receive, send)
            else:
                with self.session(scope):
                    await app(scope, receive, send)

        return guarded

    @contextmanager
    def session(self, scope: Scope) -> Iterator[None]:
        """Count a session while it is open."""
        client = client_of(scope)
        self.sessions += 1
        self._open[client] += 1
        try:
            yield
        finally:
            self.sessions -= 1
            self._open[client] -= 1
            self._open += Counter()  # drops clients without a session

    def refusal(self, scope: Scope) -> Refusal | None:
        """Count a request or new session, or return the reason why it is refused."""
        reason = self._too_many_requests(scope)
        if reason is None and (scope["type"] == "websocket" or self._opens_page(scope)):
            reason = self._no_room(scope)
        if reason is not None:
            self.refused[reason.limit] += 1
        return reason

    def _too_many_requests(self, scope: Scope) -> Refusal | None:
        limit, most = "requests_each", self.limits.max_requests_per_minute
        if is_local(scope) or not most:
            return None
        if _is_file(scope):
            limit, most = "files_each", most * FILES_A_REQUEST
        seconds = ceil(self._recent.wait((client_of(scope), limit), most))
        if not seconds:
            return None
        return Refusal(
            limit,
            429,
            f"More than {most:,} requests came from your address within a minute: try again in "
            f"{seconds} second{'s' * (seconds != 1)}.",
            seconds,
        )

    def _opens_page(self, scope: Scope) -> bool:
        """Return whether a browser requests a page, other than by reloading an open one.

        The session of an open page ends only after its reload arrives. A reloading browser sends
        ``Cache-Control``.
        """
        connection = HTTPConnection(scope)
        is_page = scope["method"] == "GET" and PAGE.fullmatch(scope["path"])
        if not is_page or _is_file(scope) or not _wants_page(connection):
            return False
        reloads = XSRF_COOKIE_NAME in connection.cookies and "cache-control" in connection.headers
        return not (reloads and self._open[client_of(scope)])

    def _no_room(self, scope: Scope) -> Refusal | None:
        most, limit = self.limits.max_sessions, self.limits.max_sessions_each
        if most and self.sessions >= most:
            return Refusal(
                "sessions",
                503,
                f"This server is full: {_pages(most)} open, and it takes no more. Try again in "
                f"{RETRY_AFTER} seconds.",
            )
        if limit and self._open[client_of(scope)] >= limit and not is_local(scope):
            return Refusal(
                "sessions_each",
                429,
                f"{_pages(limit)} open from your address, and this server takes no more from one: "
                f"close one, or try again in {RETRY_AFTER} seconds.",
            )
        return None

    def _warn_of_proxy(self, scope: Scope) -> None:
        """Warn once about an untrusted proxy in the local network: its clients count as one."""
        host = host_of(scope)
        named = HTTPConnection(scope).headers.getlist(FORWARDED)
        if self._warned or not named or any(host in header for header in named):
            return
        address = parsed(host)
        if address is not None and (address.is_private or address.is_loopback):
            self._warned = True
            LOG.warning(
                "Requests come through %s, which is not trusted to name clients, so that all of "
                "them count as one client: set FORWARDED_ALLOW_IPS to the addresses of the proxy.",
                host,
            )


def _is_file(scope: Scope) -> bool:
    return scope["type"] == "http" and FILES.fullmatch(scope["path"]) is not None


def _wants_page(connection: HTTPConnection) -> bool:
    return "text/html" in connection.headers.get("accept", "")


def _pages(number: int) -> str:
    return "1 page is" if number == 1 else f"{number:,} pages are"
