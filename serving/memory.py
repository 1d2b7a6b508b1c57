"""Collect garbage at intervals instead of after every click.

Streamlit collects all garbage after every run of the script, while all other clients wait;
``.streamlit/config.toml`` turns that off. Instead, objects that live as long as the server (mostly
modules) are frozen once, and the rest is collected every few seconds, so that memory stays flat.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pages import NAMES, module_of


@asynccontextmanager
async def collecting(pause: float = 20.0) -> AsyncIterator[None]:
    """Import the pages, so that the first reader does not wait; collect now and then.

    Args:
        pause: seconds between two collections.
    """
    for name in NAMES:
        module_of(name)
    gc.collect()
    gc.freeze()
    task = asyncio.create_task(_collect(pause))
    try:
        yield
    finally:
        task.cancel()
        gc.unfreeze()


async def _collect(pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        gc.collect()
