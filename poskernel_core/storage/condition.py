"""The health of a store: whether it can be read and written, and its size. Writes nothing."""

from dataclasses import dataclass

from poskernel_core.common.errors import NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.storage.store import Store

STATES = ("writable", "read-only", "full", "failing")


@dataclass(frozen=True)
class Condition:
    """The state of a store.

    Attributes:
        state: ``writable``, ``read-only`` or ``full`` (both readable), or ``failing``.
        entries: number of entries, without shipped results; None if unknown.
        size: bytes of their values; None if unknown.
    """

    state: str
    entries: int | None = None
    size: int | None = None


def condition(store: Store) -> Condition:
    """Check a store; a damaged database is set aside, as on any other access."""
    state = "writable"
    try:
        try:
            store.make_room(0)
        except NoSpace:
            state = "full"
        except ReadOnlyStore:
            state = "read-only"
        sizes = store.keys()
        return Condition(state, len(sizes), sum(sizes.values()))
    except StoreFailed:
        return Condition("failing")
