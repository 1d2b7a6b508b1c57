"""``/plotly.js``: Plotly's own script, for the figures of the pages (``pages/shared/cards``)."""

import gzip
from functools import cache
from importlib.resources import files

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving.headers import KEPT


@cache
def script() -> bytes:
    """Return the script as it is sent."""
    return gzip.compress(files("plotly").joinpath("package_data/plotly.min.js").read_bytes(), 6)


def plotly_route() -> Route:
    """Return the route; the pages ask for it with its version."""

    async def answer(_: Request) -> Response:
        packed = await run_in_threadpool(script)
        return Response(packed, media_type="text/javascript", headers=KEPT)

    return Route("/plotly.js", answer)
