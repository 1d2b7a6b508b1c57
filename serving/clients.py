"""Who has sent a request, by its address, and whether that is this machine."""

from starlette.requests import HTTPConnection
from starlette.types import Scope

from poskernel_core.common.addresses import network_of, parsed

MAX_ADDRESS = 45
FORWARDED = "x-forwarded-for"


def host_of(scope: Scope) -> str:
    """Return the address of a client; empty if there is none."""
    client = scope.get("client")
    return str(client[0])[:MAX_ADDRESS] if client else ""


def client_of(scope: Scope) -> str:
    """Return which client has sent a request: an IPv4 address, or an IPv6 /64 network."""
    return network_of(host_of(scope)) or "unknown"


def is_local(scope: Scope) -> bool:
    """Return whether the client is on this machine and not a proxy for another client."""
    address = parsed(host_of(scope))
    forwarded = FORWARDED in HTTPConnection(scope).headers
    return address is not None and address.is_loopback and not forwarded
