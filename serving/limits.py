"""How many sessions and requests the server takes, of one visitor and of all.

A session is a page that is open in a browser: a web socket. Requests are pages, uploads and new
sessions; files (scripts, fonts, pictures) and questions after the server's health are counted
apart and allowed far more often, so that whoever has a page open is not cut off from its parts.
Whoever is on this machine itself, and no proxy, is bound by the number of all sessions alone.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME

from poskernel_core.common.settings import Settings, settings
from serving.page import PAGE
from serving.rates import Rate
from serving.refusals import Refusal, refuse
from serving.visitors import is_local, unknown_proxy, visitor_of

__all__ = ["FILES_A_REQUEST", "LIMITS", "Bounds", "Doors", "Limits"]

FILES_A_REQUEST = 30
"""Files that are allowed with each request: a browser's first visit makes 5 requests, and some 110
of files; later ones as many requests, and a few of files."""

FILES = re.compile(r"(/[^/]+)?/(static|media|component|_stcore/bidi-components)/.*|(/.*)?/health")
LIMITS = ("sessions", "sessions_each", "requests_each", "files_each")
PAUSE = 30
"""Seconds after which somebody for whom there was no room may try again."""

LOG = logging.getLogger("uvicorn.error")
DEFAULTS = Settings()


@dataclass(frozen=True)
class Bounds:
    """What the host allows; 0 is any number.

    Attributes:
        sessions: sessions at once, of all visitors.
        sessions_each: sessions at once of one visitor.
        requests_each: requests of one visitor in a minute.
    """

    sessions: int = DEFAULTS.max_sessions
    sessions_each: int = DEFAULTS.max_sessions_each
    requests_each: int = DEFAULTS.max_requests_per_minute

    @classmethod
    def of_host(cls) -> Bounds:
        """Return the bounds that the host has set.

        Raises:
            BadRequest: one of them is no number.
        """
        told = settings()
        return cls(told.max_sessions, told.max_sessions_each, told.max_requests_per_minute)


class Doors:
    """Who is in, and who may come in.

    Attributes:
        sessions: how many are open.
        refused: how often each limit was reached.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.refused: Counter[str] = Counter(dict.fromkeys(LIMITS, 0))
        self._requests = Rate(bounds.requests_each)
        self._files = Rate(bounds.requests_each * FILES_A_REQUEST)
        self._open: Counter[str] = Counter()
        self.sessions = 0

    @contextmanager
    def session(self, scope: Scope) -> Iterator[None]:
        """Count a session as long as it is open, however it ends."""
        visitor = visitor_of(scope)
        self.sessions += 1
        self._open[visitor] += 1
        try:
            yield
        finally:
            self.sessions -= 1
            self._open[visitor] -= 1
            if not self._open[visitor]:
                del self._open[visitor]

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request or a new session is not let in; None lets it in, and counts it."""
        found = self._too_often(scope)
        if found is None and (scope["type"] == "websocket" or self._is_new_reader(scope)):
            found = self._no_room(scope)
        if found is not None:
            self.refused[found.limit] += 1
        return found

    def _too_often(self, scope: Scope) -> Refusal | None:
        if is_local(scope):
            return None
        file = _is_file(scope)
        rate, limit = (self._files, "files_each") if file else (self._requests, "requests_each")
        seconds = ceil(rate.wait(visitor_of(scope)))
        if not seconds:
            return None
        return Refusal(
            limit,
            429,
            f"More than {rate.most:,} requests came from your address within a minute: try again "
            f"in {_seconds(seconds)}.",
            seconds,
        )

    def _is_new_reader(self, scope: Scope) -> bool:
        """Tell whether a page is asked for, and not by somebody who reloads an open one.

        The session of a page that is reloaded is open until the new page arrives. Browsers say that
        they reload by refusing what is cached; one that does not say so need only try again.
        """
        if scope["method"] != "GET" or _is_file(scope) or not PAGE.fullmatch(scope["path"]):
            return False
        connection = HTTPConnection(scope)
        if "text/html" not in connection.headers.get("accept", ""):
            return False
        reloads = XSRF_COOKIE_NAME in connection.cookies and "cache-control" in connection.headers
        return not (reloads and self._open[visitor_of(scope)])

    def _no_room(self, scope: Scope) -> Refusal | None:
        most, each = self.bounds.sessions, self.bounds.sessions_each
        if most and self.sessions >= most:
            return Refusal(
                "sessions",
                503,
                f"This server is full: {_pages(most)} open, and it takes no more. Try again in "
                f"{PAUSE} seconds.",
                PAUSE,
            )
        if each and self._open[visitor_of(scope)] >= each and not is_local(scope):
            return Refusal(
                "sessions_each",
                429,
                f"{_pages(each)} open from your address, and this server takes no more from one: "
                f"close one, or try again in {PAUSE} seconds.",
                PAUSE,
            )
        return None


class Limits:
    """Middleware that lets in whom the doors let in."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app = app
        self._doors = doors
        self._warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one session to its end."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        self._warn(scope)
        refusal = self._doors.refusal(scope)
        if refusal is not None:
            await refuse(refusal, scope, receive, send)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)
        else:
            with self._doors.session(scope):
                await self._app(scope, receive, send)

    def _warn(self, scope: Scope) -> None:
        """Tell the host once of a proxy that makes all its visitors one."""
        proxy = None if self._warned else unknown_proxy(scope)
        if proxy is not None:
            self._warned = True
            LOG.warning(
                "Requests come through %s, which is not trusted to name who asks, so that all of "
                "them count as one visitor: set FORWARDED_ALLOW_IPS to the addresses of the proxy.",
                proxy,
            )


def _is_file(scope: Scope) -> bool:
    """Tell whether a part of a page is asked for, or the server's health."""
    return scope["type"] == "http" and FILES.fullmatch(scope["path"]) is not None


def _pages(number: int) -> str:
    return "1 page is" if number == 1 else f"{number:,} pages are"


def _seconds(number: int) -> str:
    return "1 second" if number == 1 else f"{number} seconds"
