"""What the browser keeps for good: the numbers of all heads, our components' scripts, and Plotly's.

``/numbers/<key>`` is a stored result of all heads as a block that the browser draws from. The key
is the hash of all inputs, so a block never changes.
"""

import gzip
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from cachetools import LRUCache, cached
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pages.shared.look.component import SCRIPTS
from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.provenance import stored
from poskernel_core.export.block import packed
from serving.headers import KEPT

MAX_BLOCKS = 128
"""Blocks in memory, of a hundred kilobytes each for a model of 300 heads."""


def numbers_route(engine: Callable[[], Engine]) -> Route:
    """Return the route of the blocks in the store of an engine."""

    @cached(LRUCache(MAX_BLOCKS), lock=threading.Lock())
    def block(key: str) -> bytes:
        result = stored(engine().store, key)
        if result is None:
            raise BadRequest("Nothing is stored under this key.")
        return gzip.compress(packed(result), 6)

    def answer(request: Request) -> Response:
        try:
            data = block(request.path_params["key"])
        except PosKernelError as error:
            return PlainTextResponse(str(error), 404)
        return Response(data, media_type="application/octet-stream", headers=KEPT)

    return Route("/numbers/{key}", answer)


def parts_route() -> Route:
    """Return the route of the components' scripts."""

    def answer(request: Request) -> Response:
        script = SCRIPTS.get(request.path_params["name"])
        if script is None:
            return PlainTextResponse("No such script.", 404)
        return Response(
            gzip.compress(script.encode(), 6), media_type="text/javascript", headers=KEPT
        )

    return Route("/parts/{name}", answer)


def plotly_route() -> Route:
    """Return the route of ``/plotly.js``; the pages ask for it with its version."""

    @cache
    def script() -> bytes:
        return gzip.compress(files("plotly").joinpath("package_data/plotly.min.js").read_bytes(), 6)

    def answer(_: Request) -> Response:
        return Response(script(), media_type="text/javascript", headers=KEPT)

    return Route("/plotly.js", answer)
