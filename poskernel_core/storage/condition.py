"""Whether a store can be read and written just now, and how much is in it.

Nothing is written to find out: a transaction is begun and given up.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from poskernel_core.common.errors import NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.storage.disk import DATABASE, peek_totals
from poskernel_core.storage.store import UNWRITABLE, Store

__all__ = ["STATES", "Condition", "condition"]

STATES = ("writable", "read-only", "full", "failing")

PATIENCE = 0.2
"""Seconds; whoever holds the lock meanwhile is writing, so that it can be written."""


@dataclass(frozen=True)
class Condition:
    """How a store is.

    Attributes:
        state: ``writable``; ``read-only`` or ``full``, which can be read; or ``failing``.
        entries: how many it holds, without what comes with the project; None if unknown.
        size: its bytes on the disk; None if unknown.
    """

    state: str
    entries: int | None = None
    size: int | None = None


def condition(store: Store) -> Condition:
    """Look at a store; what is damaged is mended on the way, as at any other use."""
    try:
        store.make_room(0)
        size, entries = store.size(), store.entries()
        _begin_to_write(store.directory)
        return Condition("writable", entries, size)
    except NoSpace:
        state = "full"
    except ReadOnlyStore:
        state = "read-only"
    except StoreFailed:
        return Condition("failing")
    try:
        entries, size = peek_totals(store.directory)
    except (OSError, sqlite3.Error, LookupError, ValueError):
        return Condition("failing")
    return Condition(state, entries, size)


def _begin_to_write(directory: Path) -> None:
    """Do what every writing begins with, and take it back.

    Raises:
        NoSpace, ReadOnlyStore, StoreFailed: it cannot be done.
    """
    try:
        with contextlib.closing(
            sqlite3.connect(directory / DATABASE, timeout=PATIENCE, isolation_level=None)
        ) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return
        if code in UNWRITABLE:
            raise ReadOnlyStore("The store's database cannot be written.") from error
        if code == sqlite3.SQLITE_FULL:
            raise NoSpace("No space is left on the disk that holds the store.") from error
        raise StoreFailed("The store cannot be read or written.") from error
