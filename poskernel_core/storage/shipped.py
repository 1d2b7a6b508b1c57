"""Shipped results of the bundled models: a read-only layer below the store.

There is one zip file per model, ``demo/results/<model>.zip``, made by ``tools/ship_results.py``.
It holds the results that the model's pages show first and, for some models, the statistics for
every head, query position and skip of the landing page. The host can add files of results
(``POSKERNEL_MODELS``).

Entries have the same keys as in the store, which looks here last. Only the part of a key after the
model's prefix is compared, so archives of an earlier layout can still be read. Shipped entries are
never copied or evicted and never hide newer ones; an entry with an outdated key is never found.
``POSKERNEL_SHIPPED=0`` turns off the project's own files.

Results are stored in single precision; statistics, and the figures of a single text, have fewer
bits.
"""

import json
import zipfile
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.files import ZIP_DAMAGE
from poskernel_core.common.specs import model_prefix
from poskernel_core.models.stored import MANIFEST, result_files
from poskernel_core.storage.encoding import Entry, decode, read_header

ASKED_FILE = "asked.json"
"""The requests that an archive answers, page by page; used to check whether it is out of date."""

PACKED = "packed"
SMALL = 1024
"""Arrays with fewer numbers are stored unchanged."""

SINGLE = 23
"""Bits of the mantissa in single precision."""


class Shipped:
    """The entries of archives, by key; thread-safe."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def has(self, key: str) -> bool:
        """Return whether there is an entry, unless it was found to be damaged."""
        return _address(key) in self._places

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None if the entry is missing or damaged."""
        place = self._places.get(_address(key))
        if place is None:
            return None
        file, name = place
        with suppress(*ZIP_DAMAGE):
            with zipfile.ZipFile(file) as archive:
                found = decode(archive.read(name), name)
            if found is not None:
                return unpack(found)
        self._places.pop(_address(key), None)  # now counts as missing, so it will be computed
        return None

    def headers(self, known: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and header of every entry whose key is not in ``known``, without arrays."""
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
        """The file of every entry and the name in it, by address."""
        found: dict[str, tuple[Path, str]] = {}
        for file in self._files:
            with suppress(*ZIP_DAMAGE), zipfile.ZipFile(file) as archive:
                found |= {_address(name): (file, name) for name in _names(archive)}
        return found


def _address(key: str) -> str:
    """Return the part of a key after its model's prefix."""
    return key.rpartition("-")[2]


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name not in (ASKED_FILE, MANIFEST)]


_of = cache(Shipped)


def shipped() -> Shipped:
    """Return the project's results (unless turned off) and those that the host offers.

    Raises:
        BadRequest: ``POSKERNEL_SHIPPED`` is neither on nor off.
    """
    return _of(result_files())


def pack(entry: Entry, bits: Mapping[str, int]) -> Entry:
    """Convert an entry for shipping: bytes of the same place value are grouped, to compress better.

    Large float arrays are stored in single precision, with the mantissa rounded to ``bits[name]``,
    so that their lowest bytes compress to nothing.
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
    """Reverse :func:`pack`."""
    header, planes = dict(entry[0]), entry[1]
    if PACKED not in header:  # written by 'export'
        return entry
    packed = json.loads(header.pop(PACKED))
    arrays = {}
    for name, how in packed.items():
        flat = np.frombuffer(np.ascontiguousarray(planes[name].T).tobytes(), how["kept"])
        arrays[name] = flat.astype(how["dtype"], copy=True).reshape(how["shape"])
    return header, arrays


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """Round the mantissa of single-precision floats to ``bits`` bits; NaN and infinity are kept."""
    dropped = SINGLE - bits
    if not dropped:
        return array
    words = np.array(array, order="C").view(np.uint32)
    words += np.uint32(1 << (dropped - 1))
    words &= np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return words.view(np.float32)
