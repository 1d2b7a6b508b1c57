"""Who asks, as far as a server can tell: the address that a request came from.

uvicorn puts it into the request, and where the request came through a proxy that it trusts
(``FORWARDED_ALLOW_IPS``, by default this machine) the address that the proxy names. An IPv6
visitor is a network of 64 bits, as providers hand out: its other half is the visitor's to choose.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import Scope

__all__ = ["address_of", "is_local", "shortened", "unknown_proxy", "visitor_of"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
FORWARDED = "x-forwarded-for"
NOWHERE = "unknown"
LONGEST = 45
"""Characters of an address; what a proxy names may be anything."""

REMEMBERED = 4096
"""Addresses that need not be read anew at each request."""

NETWORK = 64
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
    return _one_visitor(address_of(scope))


def shortened(address: str) -> str:
    """Return an address without what tells neighbours apart: 24 bits of IPv4, 48 of IPv6."""
    parsed = _parsed(address)
    if parsed is None:
        return NOWHERE
    network = ipaddress.ip_network(f"{parsed}/{SHORT[parsed.version]}", strict=False)
    return str(network.network_address)


def is_local(scope: Scope) -> bool:
    """Tell whether somebody on this machine asks, and no proxy on it for somebody else."""
    parsed = _parsed(address_of(scope))
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
    parsed = _parsed(client[0])
    near = parsed is not None and (parsed.is_private or parsed.is_loopback)
    return str(client[0]) if near else None


@lru_cache(REMEMBERED)
def _written(text: str) -> str:
    parsed = _parsed(text)
    return text if parsed is None else str(parsed)


@lru_cache(REMEMBERED)
def _one_visitor(address: str) -> str:
    parsed = _parsed(address)
    if parsed is None or parsed.version == 4:
        return address
    return str(ipaddress.ip_network((int(parsed), NETWORK), strict=False))


@lru_cache(REMEMBERED)
def _parsed(text: str) -> Address | None:
    """Return an address; one of IPv4 in the clothes of IPv6 is one of IPv4."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
