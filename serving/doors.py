"""Which requests of programs are let in, by the host that they name and the site that sent them.

There is no sign-in on a local machine, and a browser sends requests for any page that its reader
opens. So a request must name this server as its host (else a name of another site may have been
pointed at this machine), must not come from a page of another site, and must change things by JSON
alone, which no form sends (nor a DELETE, which needs no body). Programs other than browsers send
no such headers, and are let in.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from poskernel_core.common.addresses import parsed
from poskernel_core.common.settings import settings
from serving.problems import Problem

HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
OWN_SITES = ("same-origin", "none")
"""What a browser says of requests of this server's pages, and of an address that was typed."""

JSON = "application/json"
PORTS = {"http": ":80", "https": ":443"}


def doors(app: ASGIApp, started_as: str = "") -> ASGIApp:
    """Wrap an app so that it gets no request of another site, and none by another host's name.

    Args:
        app: what programs ask.
        started_as: the name that the server was started with; empty if it was given none.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        problem = refusal(connection, started_as)
        if scope["type"] == "websocket":
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
        elif problem is not None:
            await problem.response(scope)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


def refusal(connection: HTTPConnection, started_as: str = "") -> Problem | None:
    """Return why a request is not let in, or None."""
    headers, method = connection.headers, connection.scope.get("method")
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not _is_ours(hosts[0], connection.scope, started_as):
        return Problem(
            403,
            f"This server does not answer programs as {', '.join(hosts)[:80]!r}: ask it as "
            "localhost, or have its host set POSKERNEL_ADDRESS to the address that you use.",
        )
    foreign = [origin for origin in headers.getlist("origin") if origin not in _origins(hosts[0])]
    foreign += [site for site in headers.getlist("sec-fetch-site") if site not in OWN_SITES]
    if foreign:
        return Problem(
            403, "This server answers no requests from pages of other sites: ask it from a program."
        )
    if method == "OPTIONS":
        return Problem(
            405,
            "Pages of other sites may not ask this server.",
            headers={"Allow": "GET, POST, DELETE"},
        )
    kinds = [header.partition(";")[0].strip().lower() for header in headers.getlist("content-type")]
    sent = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    if (method == "POST" or (method == "DELETE" and (sent or kinds))) and kinds != [JSON]:
        got = ", ".join(kinds)[:80] or "none"
        return Problem(415, f"Expected the content type {JSON}, got {got}: send it with the body.")
    return None


def _is_ours(host: str, scope: Scope, started_as: str) -> bool:
    """Return whether a host is this machine's, or a name that the server's host has given it."""
    match = HOST.fullmatch(host)
    if match is None:
        return False
    name = (match[1] or match[2]).lower().removesuffix(".")
    address, public = parsed(name), settings().address
    if name == "localhost" or (address is not None and address.is_loopback):
        return True
    named = urlsplit(public).hostname if public else None
    if name in {own_name.lower() for own_name in (named, started_as) if own_name}:
        return True
    return public is None and _by_proxy(scope)


def _by_proxy(scope: Scope) -> bool:
    """Return whether a proxy that ``FORWARDED_ALLOW_IPS`` names has passed a request on.

    uvicorn then puts the client's address in place of the proxy's, without a port; any page could
    claim the header itself. The default, proxies of this machine, is no word of the host.
    """
    client = scope.get("client")
    return bool(settings().forwarded_allow_ips and client and client[1] == 0)


def _origins(host: str) -> Iterator[str]:
    """Yield the origins of this server's own pages, which were asked for by this host."""
    for scheme, port in PORTS.items():
        yield f"{scheme}://{host.lower().removesuffix(port)}"
    if public := settings().address:
        parts = urlsplit(public)
        yield f"{parts.scheme}://{parts.netloc}".lower()
