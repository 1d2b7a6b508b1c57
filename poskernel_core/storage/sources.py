"""Where shards of other machines are read from: exported files, folders of them, whole stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import is_file, is_folder
from poskernel_core.storage.archive import read_archive
from poskernel_core.storage.disk import DATABASE
from poskernel_core.storage.shards import Source
from poskernel_core.storage.store import Store

__all__ = ["open_sources"]


@contextmanager
def open_sources(places: Sequence[Path]) -> Iterator[dict[str, Source]]:
    """Open files and folders to read entries from; give them by name.

    Raises:
        BadArchive: a file that 'export' did not write, or a damaged one.
        BadRequest: nothing there, or nothing that may be read.
    """
    with ExitStack() as stack:
        found: dict[str, Source] = {}
        for place in places:
            files = _archives(place) if is_folder(place) else [place]
            is_store = is_file(place / DATABASE)
            if is_store:
                store = Store(place)
                stack.callback(store.close)
                found[str(place)] = store
            elif not files:
                raise BadRequest(
                    f"Expected a store or exported files (.zip) in {str(place)!r}, found neither."
                )
            for file in [] if is_store else files:
                found[str(file)] = stack.enter_context(read_archive(file))
        yield found


def _archives(folder: Path) -> list[Path]:
    """Return the exported files of a folder, without those that are still being written."""
    return sorted(file for file in folder.glob("*.zip") if not file.name.startswith("."))
