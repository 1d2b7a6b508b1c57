"""Requests from outside: what a program that asks a server may name.

``locate`` and the corpora open any directory or file for whoever has this machine. While
:func:`from_outside` holds, they take only what the menus of the dashboard offer, and look at no
path before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_outside: ContextVar[bool] = ContextVar("outside", default=False)


@contextmanager
def from_outside() -> Iterator[None]:
    """Take the names of models and corpora, in this thread, for those that a stranger gave."""
    token = _outside.set(True)
    try:
        yield
    finally:
        _outside.reset(token)


def outside() -> bool:
    """Return whether the names at hand come from outside."""
    return _outside.get()
