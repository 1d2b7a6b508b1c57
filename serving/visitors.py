"""Who asks, as far as a server can tell: the address that a request came from.

uvicorn puts it into the request, and where the request came through a proxy that it trusts
(``FORWARDED_ALLOW_IPS``, by default this machine) the address that the proxy names.
"""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.types import Scope

from poskernel_core.common.addresses import network_of
from poskernel_core.common.addresses import parsed as parse

__all__ = ["address_of", "is_local", "shortened", "unknown_proxy", "visitor_of"]

FORWARDED = "x-forwarded-for"
NOWHERE = "unknown"
LONGEST = 45
"""Characters of an address; what a proxy names may be anything."""

SHORT = {4: 24, 6: 48}
"""Bits that are left of a shortened address, by version."""


def address_of(scope: Scope) -> str:
    """Return the address of whoever asks, as it is written; ``unknown`` where there is none."""
    client = scope.get("client")
    if not client or not client[0]:
        return NOWHERE
    return _written(str(client[0])[:LONGEST])


def visitor_of(scope: Scope) -> str:
    """Return what is one visitor to the limits: an IPv4 address, or an IPv6 network of 64 bits."""
    return network_of(address_of(scope))


def shortened(address: str) -> str:
    """Return an address without what tells neighbours apart: 24 bits of IPv4, 48 of IPv6."""
    parsed = parse(address)
    if parsed is None:
        return NOWHERE
    network = ipaddress.ip_network(f"{parsed}/{SHORT[parsed.version]}", strict=False)
    return str(network.network_address)


def is_local(scope: Scope) -> bool:
    """Tell whether somebody on this machine asks, and no proxy on it for somebody else."""
    parsed = parse(address_of(scope))
    return parsed is not None and parsed.is_loopback and FORWARDED not in Headers(scope=scope)


def unknown_proxy(scope: Scope) -> str | None:
    """Return the address of a neighbour that names a visitor and is not believed; else None.

    A proxy that is not listed in ``FORWARDED_ALLOW_IPS`` makes all its visitors one. Strangers from
    afar who only pretend to be a proxy are no neighbours.
    """
    client = scope.get("client")
    named = Headers(scope=scope).getlist(FORWARDED)
    if not client or not named or any(str(client[0]) in each for each in named):
        return None
    parsed = parse(client[0])
    near = parsed is not None and (parsed.is_private or parsed.is_loopback)
    return str(client[0]) if near else None


def _written(text: str) -> str:
    address = parse(text)
    return text if address is None else str(address)
