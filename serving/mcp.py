"""``/mcp``: the tools of assistants (MCP, streamable HTTP), behind the doors of other programs.

A tool asks what ``api/v1/`` answers, inside this process and as the person who called it, so it has
the same names, limits and sentences. The SDK is imported when somebody asks for the first time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from cachetools import LRUCache
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from poskernel_core.client import Server
from poskernel_core.common.settings import settings
from serving.api import Api, mode
from serving.asked import MAX_BODY
from serving.callers import MAX_PERSONS, MAX_WAITING
from serving.clients import FORWARDED, is_local
from serving.doors import doors
from serving.problems import Problem

PATH = "/mcp"
MAX_SESSIONS, IDLE_SECONDS = 200, 600.0
ANY_HOST = "0.0.0.0"
"""What tells the SDK to leave hosts and origins to our doors, which know what the host has set."""

SECONDS = 60.0
"""Seconds in which the server answers itself."""


class Mcp:
    """The tools over HTTP.

    Args:
        api: what answers programs.
        started_as: the name that the server was started with; empty if it was given none.
        base: the base path of the server.
    """

    def __init__(self, api: Api, started_as: str = "", base: str = "") -> None:
        self._callers, self._base = api.callers, base
        self._inside = Starlette(routes=[api.route(started_as)])
        self._guarded = doors(self._served, started_as)
        self._starting = asyncio.Lock()
        self._tasks: TaskGroup | None = None
        self._app: ASGIApp | None = None
        self._turns: LRUCache[str, anyio.CapacityLimiter] = LRUCache(MAX_PERSONS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._guarded(scope, receive, send)

    def route(self) -> BaseRoute:
        """Return the route."""
        return Route(PATH, self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the sessions of assistants while the server runs."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(HTTPConnection(scope))
            async with self._starting:
                if self._app is None:
                    assert self._tasks is not None, "the server has not started"
                    await self._tasks.start(self._hold)
        except Problem as problem:
            await problem.response(scope)(scope, receive, send)
            return
        assert self._app is not None
        await self._app(scope, receive, send)

    def _check(self, connection: HTTPConnection) -> None:
        """Check that whoever asks is answered here.

        Raises:
            Problem: assistants are not.
        """
        if mode() == "off":
            raise Problem(404, "This server does not answer programs (POSKERNEL_API=off).")
        if settings().api is None and not is_local(connection.scope):
            raise Problem(
                403,
                "This server answers assistants of its own machine alone: ask its host for "
                "POSKERNEL_API=stored or on.",
            )
        self._callers.of(connection)

    async def _hold(self, *, task_status: TaskStatus[None]) -> None:
        assistants = await anyio.to_thread.run_sync(self._assistants)
        self._app = assistants.streamable_http_app(
            streamable_http_path=PATH,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=MAX_BODY,
            max_sessions=MAX_SESSIONS,
            host=ANY_HOST,
        )
        async with assistants.session_manager.run():
            task_status.started()
            await anyio.sleep_forever()

    def _assistants(self) -> Any:
        try:
            from poskernel_core.mcp.server import Assistants
        except ModuleNotFoundError as error:
            raise Problem(
                404, "This server answers no assistants: its host installs 'poskernel[mcp]' first."
            ) from error
        return Assistants(self._source, self._turn)

    def _source(self, context: Any) -> Server:
        request = _request(context)
        own = f"{request.url.scheme}://{request.headers['host']}{self._base}"
        inside = _Inside(self._inside, request)
        return Server(settings().address or own, {}, SECONDS, inside)

    def _turn(self, context: Any) -> anyio.CapacityLimiter:
        """Return the limit of a person: as many calls at a time as requests may wait."""
        person = self._callers.of(_request(context)).person
        turn: Any = self._turns.setdefault(person, anyio.CapacityLimiter(MAX_WAITING))
        return turn


class _Inside(httpx2.BaseTransport):
    """Passes what a tool asks, in its thread, to the answers of this process.

    Each call is a client of its own, of the same person as the request that it came with.
    """

    def __init__(self, app: ASGIApp, request: Request) -> None:
        client = request.scope["client"]
        self._transport = httpx2.ASGITransport(app, raise_app_exceptions=False, client=client)
        named = {FORWARDED, (settings().user_header or FORWARDED).lower()}
        self._who = [pair for pair in request.headers.raw if pair[0].decode("latin-1") in named]
        self._loop = asyncio.get_running_loop()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request, also the last one of a call that was cancelled."""
        return asyncio.run_coroutine_threadsafe(self._answered(request), self._loop).result()

    async def _answered(self, outer: httpx2.Request) -> httpx2.Response:
        path = outer.url.raw_path
        url = outer.url.copy_with(raw_path=path[path.index(b"/api/") :])  # below any base path
        headers = [*outer.headers.raw, *self._who]
        inner = httpx2.Request(outer.method, url, headers=headers, content=outer.read())
        reply = await self._transport.handle_async_request(inner)
        assert isinstance(reply.stream, httpx2.AsyncByteStream)
        data = b"".join([chunk async for chunk in reply.stream])
        return httpx2.Response(reply.status_code, headers=reply.headers, content=data)


def _request(context: Any) -> Request:
    request: Request = context.request_context.request
    return request
