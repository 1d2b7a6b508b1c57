"""Addresses of those who ask: what of an address is one visitor.

An IPv6 visitor is a network of 64 bits, as providers hand out: the other half is the visitor's to
choose.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TypeAlias

__all__ = ["Address", "network_of", "parsed"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
REMEMBERED = 4096
"""How many addresses are kept as they were read, for the next request from them."""

NETWORK = 64


@lru_cache(REMEMBERED)
def parsed(text: str) -> Address | None:
    """Return an address, or None; one of IPv4 in the clothes of IPv6 is one of IPv4."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


@lru_cache(REMEMBERED)
def network_of(text: str) -> str:
    """Return what is one visitor: an IPv4 address, an IPv6 network of 64 bits, else the text."""
    address = parsed(text)
    if address is None:
        return text
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), NETWORK), strict=False))
