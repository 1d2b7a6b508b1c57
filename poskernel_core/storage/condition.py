"""Whether a store can be read and written just now, and how much is in it; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

from poskernel_core.common.errors import NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.storage.store import Store

STATES = ("writable", "read-only", "full", "failing")


@dataclass(frozen=True)
class Condition:
    """How a store is.

    Attributes:
        state: ``writable``; ``read-only`` or ``full``, which can be read; or ``failing``.
        entries: how many it holds, without what comes with the project; None if unknown.
        size: bytes of their values; None if unknown.
    """

    state: str
    entries: int | None = None
    size: int | None = None


def condition(store: Store) -> Condition:
    """Look at a store; a damaged database is made anew on the way, as at any other use."""
    state = "writable"
    try:
        try:
            store.make_room(0)
        except NoSpace:
            state = "full"
        except ReadOnlyStore:
            state = "read-only"
        return Condition(state, store.entries(), store.size())
    except StoreFailed:
        return Condition("failing")
