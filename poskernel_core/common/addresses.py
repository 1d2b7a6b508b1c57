"""IP addresses of clients, and which of them count as one client.

In IPv6, a client is a whole /64 network: providers assign networks of this size, and the client
chooses the lower half of the address.
"""

import ipaddress
from functools import lru_cache
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
REMEMBERED = 4096
"""Number of parsed addresses in the cache."""

NETWORK = 64
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Addresses to listen at that only this machine reaches."""


@lru_cache(REMEMBERED)
def parsed(text: str) -> Address | None:
    """Parse an address, or return None; an IPv4-mapped IPv6 address becomes IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(REMEMBERED)
def network_of(text: str) -> str:
    """Return the identity of a client: the IPv4 address, the IPv6 /64 network, else the text."""
    address = parsed(text)
    if address is None:
        return text
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), NETWORK), strict=False))
