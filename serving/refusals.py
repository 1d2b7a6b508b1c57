"""What a visitor is told who is not let in: one sentence, and when to try again."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

__all__ = ["Refusal", "refuse"]

EXTENSION = "websocket.http.response"
TRY_AGAIN_LATER = 1013
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>PosKernel</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0;
    padding: 0 1.5rem }}
  h1 {{ font-size: 1.6rem; font-weight: 600 }}
</style>
<h1>PosKernel</h1>
<p>{sentence}</p>
<p><a href="">Try again</a></p>
</html>
"""


@dataclass(frozen=True)
class Refusal:
    """Why somebody is not let in.

    Attributes:
        limit: the name of the limit that was reached.
        status: of the answer: 429 where the visitor asked for too much, 503 where all did.
        sentence: what the visitor is told.
        seconds: after which it is worth another try.
    """

    limit: str
    status: int
    sentence: str
    seconds: int


async def refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a web socket before it is accepted."""
    if scope["type"] == "http":
        await _response(refusal, scope)(scope, receive, send)
        return
    await receive()  # the wish to connect
    if EXTENSION in (scope.get("extensions") or {}):
        await _response(refusal, scope)(scope, receive, send)
    else:
        await send(
            {
                "type": "websocket.close",
                "code": TRY_AGAIN_LATER,
                "reason": refusal.sentence[:100],
            }
        )


def _response(refusal: Refusal, scope: Scope) -> Response:
    """Return the sentence, on a page where a browser asks for one."""
    more = {"Retry-After": str(refusal.seconds), "Cache-Control": "no-store"}
    if "text/html" in Headers(scope=scope).get("accept", ""):
        page = PAGE.format(sentence=escape(refusal.sentence))
        return HTMLResponse(page, refusal.status, more)
    return PlainTextResponse(f"{refusal.sentence}\n", refusal.status, more)
