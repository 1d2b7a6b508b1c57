"""Upkeep of the server's memory between the readers' clicks, and not after each of them.

Streamlit collects all garbage after every run of the script, while every other reader waits:
``.streamlit/config.toml`` turns that off. Instead, what lives as long as the server (modules,
mostly) is set aside once, and the rest is collected every few seconds, so that memory stays flat.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

__all__ = ["PAUSE", "upkeep"]

PAUSE = 20.0
"""Seconds between two collections."""


@contextlib.asynccontextmanager
async def upkeep(app: object) -> AsyncIterator[None]:
    """Import the pages, so that the first reader is not the one who waits; tend."""
    _import_pages()
    gc.collect()
    gc.freeze()
    tending = asyncio.create_task(_tend())
    try:
        yield
    finally:
        tending.cancel()
        gc.unfreeze()


async def _tend() -> None:
    while True:
        await asyncio.sleep(PAUSE)
        gc.collect()


def _import_pages() -> None:
    from pages import NAMES, module_of

    for name in NAMES:
        module_of(name)
