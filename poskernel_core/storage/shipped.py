"""Shipped results of the bundled models: a read-only layer below the store.

There is one folder per model, ``demo/results/<model>/``, made by ``tools/ship_results.py``, with a
compressed file per entry, so that a change costs what changed. It holds the results that the
model's pages show first and, for some models, the statistics for every head, query position and
skip of the landing page. The host can add zip files of results (``POSKERNEL_MODELS``).

Entries have the same keys as in the store, which looks here last. Only the part of a key after the
model's prefix is compared, so results of an earlier layout can still be read. Shipped entries are
never copied or evicted and never hide newer ones; an entry with an outdated key is never found.
``POSKERNEL_SHIPPED=0`` turns off the project's own results.
"""

import lzma
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from poskernel_core.common.files import ZIP_DAMAGE
from poskernel_core.common.specs import model_prefix
from poskernel_core.models.stored import ENTRY, opened, result_places
from poskernel_core.storage.encoding import Entry, decode, read_header

ASKED_FILE = "asked.json"
"""The requests that a model's results answer, page by page, to check whether they are stale."""


class Shipped:
    """The entries of folders and zip files of results, by key; thread-safe."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places

    def has(self, key: str) -> bool:
        """Return whether there is an entry, unless it was found to be damaged."""
        return address(key) in self._found

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None if the entry is missing or damaged."""
        if (location := self._found.get(address(key))) is None:
            return None
        place, name = location
        with suppress(*ZIP_DAMAGE):
            data = lzma.decompress((opened(place) / name).read_bytes())
            if (entry := decode(data, name.removesuffix(ENTRY))) is not None:
                return entry
        self._found.pop(address(key), None)  # now counts as missing, so it will be computed
        return None

    def headers(self, known: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and header of every entry whose key is not in ``known``, without arrays."""
        for place in self._places:
            with suppress(*ZIP_DAMAGE):
                folder = opened(place)
                for name in _names(folder):
                    with suppress(*ZIP_DAMAGE), (folder / name).open("rb") as file:
                        with lzma.open(file) as stream:
                            header = read_header(stream.read) or {}
                        made = header.get("provenance", {}).get("model_fingerprint")
                        stem = name.removesuffix(ENTRY)
                        key = f"{model_prefix(made)}{address(stem)}" if made else stem
                        if header and key not in known:
                            yield key, header

    @cached_property
    def _found(self) -> dict[str, tuple[Path, str]]:
        """The place of every entry and its name there, by address."""
        locations: dict[str, tuple[Path, str]] = {}
        for place in self._places:
            with suppress(*ZIP_DAMAGE):
                names = _names(opened(place))
                locations |= {address(name.removesuffix(ENTRY)): (place, name) for name in names}
        return locations


def address(key: str) -> str:
    """Return the part of a key after its model's prefix."""
    return key.rpartition("-")[2]


def _names(folder: Any) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(ENTRY))


_of = cache(Shipped)


def shipped() -> Shipped:
    """Return the project's results (unless turned off) and those that the host offers."""
    return _of(result_places())
