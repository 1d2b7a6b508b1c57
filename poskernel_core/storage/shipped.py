"""What comes with the project: results of the bundled models, a read-only layer beneath the store.

One zip file a model, ``demo/results/<model>.zip``, made by ``tools/ship_results.py``: the results
that its pages ask for first, and of some models the statistics that every head, query position and
skip of the landing page stand on. Beside them lie the files of results that the host offers
(``POSKERNEL_MODELS``). The entries lie under the same content addresses as those of the store,
which looks here last; of an address what follows the prefix counts, so that archives of an earlier
layout are still read. So they are never copied, evicted or in the way of newer ones, and an entry
whose address is no longer asked for is never found. ``POSKERNEL_SHIPPED=0`` leaves out what comes
with the project.

Results are kept in single precision, statistics and pictures of one text with fewer bits.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.files import ZIP_DAMAGE
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import model_prefix
from poskernel_core.models.stored import MANIFEST, RESULTS, offered_files
from poskernel_core.storage.encoding import Entry, decode, read_header

ASKED_FILE = "asked.json"
"""The requests that an archive answers, page by page, for who checks whether it is stale."""

PACKED = "packed"
SMALL = 1024
"""Arrays of fewer numbers are kept as they are."""

SINGLE = 23
"""Bits of the mantissa of a float in single precision."""


class Shipped:
    """The entries of archives, by key; safe to share between threads."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def has(self, key: str) -> bool:
        """Tell whether there is an entry that has not been found damaged."""
        return _address(key) in self._places

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None where the entry is missing or damaged."""
        place = self._places.get(_address(key))
        if place is None:
            return None
        file, name = place
        with suppress(*ZIP_DAMAGE):
            with zipfile.ZipFile(file) as archive:
                found = decode(archive.read(name), name)
            if found is not None:
                return unpack(found)
        self._places.pop(_address(key), None)  # from here on it is missing, and is computed
        return None

    def headers(self, known: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every key but those known with the header of its entry; arrays are not read."""
        for file in self._files:
            with suppress(*ZIP_DAMAGE), zipfile.ZipFile(file) as archive:
                for name in _names(archive):
                    with suppress(*ZIP_DAMAGE), archive.open(name) as stream:
                        header = read_header(stream.read) or {}
                        made = header.get("provenance", {}).get("model_fingerprint")
                        key = f"{model_prefix(made)}{_address(name)}" if made else name
                        if header and key not in known:
                            yield key, header

    @cached_property
    def _places(self) -> dict[str, tuple[Path, str]]:
        """The file, and the name in it, of every entry by its address."""
        found: dict[str, tuple[Path, str]] = {}
        for file in self._files:
            with suppress(*ZIP_DAMAGE), zipfile.ZipFile(file) as archive:
                found |= {_address(name): (file, name) for name in _names(archive)}
        return found


def _address(key: str) -> str:
    """Return what of a key follows its model's prefix."""
    return key.rpartition("-")[2]


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name not in (ASKED_FILE, MANIFEST)]


@cache
def _of(files: tuple[Path, ...]) -> Shipped:
    return Shipped(files)


def shipped() -> Shipped:
    """Return what comes with the project, unless that is turned off, and what the host offers.

    Raises:
        BadRequest: ``POSKERNEL_SHIPPED`` is neither on nor off.
    """
    own = sorted(RESULTS.glob("*.zip")) if settings().shipped else []
    return _of((*own, *offered_files()))


def pack(entry: Entry, bits: Mapping[str, int]) -> Entry:
    """Return an entry as it is shipped: bytes of one place value together, which compress better.

    Large arrays of floats are kept in single precision, with their mantissa rounded to the
    ``bits`` of their name, so that the bytes of lowest value compress to nothing.
    """
    header, arrays = entry
    packed, planes = {}, {}
    for name, array in arrays.items():
        large = array.size >= SMALL and array.dtype.kind == "f"
        kept = rounded(array.astype(np.float32), bits.get(name, SINGLE)) if large else array
        packed[name] = {"dtype": array.dtype.str, "kept": kept.dtype.str, "shape": array.shape}
        bytes_of = np.frombuffer(kept.tobytes(), np.uint8).reshape(kept.size, kept.itemsize)
        planes[name] = np.ascontiguousarray(bytes_of.T)
    return header | {PACKED: json.dumps(packed)}, planes


def unpack(entry: Entry) -> Entry:
    """Return an entry as the store holds it."""
    header, planes = dict(entry[0]), entry[1]
    if PACKED not in header:  # as 'export' writes all that is stored
        return entry
    packed = json.loads(header.pop(PACKED))
    arrays = {}
    for name, how in packed.items():
        flat = np.frombuffer(np.ascontiguousarray(planes[name].T).tobytes(), how["kept"])
        arrays[name] = flat.astype(how["dtype"], copy=True).reshape(how["shape"])
    return header, arrays


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """Return single-precision floats whose mantissa has no more bits; NaN and infinity remain."""
    dropped = SINGLE - bits
    if not dropped:
        return array
    words = np.array(array, order="C").view(np.uint32)
    words += np.uint32(1 << (dropped - 1))
    words &= np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return words.view(np.float32)
