"""What the server sends leaves at once, without Nagle's algorithm.

asyncio turns it off only for listening sockets that it has made itself, and Streamlit hands over
one of its own: the body of an answer then waits some 40 ms for the client's acknowledgement of its
head (https://github.com/Kludex/uvicorn/issues/3149).
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn


@asynccontextmanager
async def sending_at_once(server: uvicorn.Server | None) -> AsyncIterator[None]:
    """Turn Nagle's algorithm off once the server listens; its connections inherit that."""

    async def turn_off(server: uvicorn.Server) -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        for listener in server.servers:
            for each in listener.sockets:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    if server is None:
        yield
        return
    waits = asyncio.create_task(turn_off(server))
    try:
        yield
    finally:
        waits.cancel()
