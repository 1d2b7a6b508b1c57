"""``export`` and ``import``: all that was computed from one model, as one file.

The file is an uncompressed zip of the store's own entries, each preceded by its checksum. An import
is bounded before it is read and checked whole before anything is written, and nothing in it can run
code.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from poskernel_core.common.errors import BadArchive, BadRequest, InvalidField
from poskernel_core.common.files import parse_json
from poskernel_core.common.specs import SCHEMA, ModelSpec, model_prefix
from poskernel_core.common.whole import check_target, write_whole
from poskernel_core.models.catalog import Located
from poskernel_core.models.stored import MANIFEST
from poskernel_core.storage.encoding import DIGEST, Entry, decode, intact
from poskernel_core.storage.store import Store

__all__ = ["ArchiveEntries", "export_entries", "export_model", "import_archive", "read_archive"]

KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}")
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    InvalidField,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a zip file with a changed byte can raise."""

MAX_ENTRY_BYTES = 4 * 2**30
MAX_MANIFEST_BYTES = 2**20
MAX_DIRECTORY_BYTES = 16 * 2**20
"""Size of the zip's list of entries, which is read into memory whole."""

MAX_ENTRIES = 100_000

END = 22
"""Length of the record at the end of a zip without a comment."""

TAIL = END + 20 + 56
"""The same with the two records that a large zip has in front of it."""

ENCRYPTED = 1


def export_model(store: Store, located: Located, target: Path) -> int:
    """Write everything computed from a model to one file; return the number of entries.

    The file appears whole or not at all.

    Raises:
        BadRequest: nothing is cached for the model, or the file cannot be written.
    """
    check_target(target)
    keys = sorted(store.keys(model_prefix(located.spec.fingerprint)))
    if not keys:
        raise BadRequest(
            f"Nothing is cached for {located.spec.name!r} yet: run 'precompute "
            f"{located.spec.name}' first."
        )
    return export_entries(store, keys, located.spec, target)


def export_entries(store: Store, keys: Sequence[str], model: ModelSpec, target: Path) -> int:
    """Write some entries of a model to one file; return how many of them there were.

    Raises:
        BadRequest: too many, or the file cannot be written.
    """
    count = 0

    def write(path: Path) -> None:
        nonlocal count
        count = _write(store, keys, model, path)

    write_whole(target, write)
    return count


def _write(store: Store, keys: Sequence[str], model: ModelSpec, path: Path) -> int:
    if len(keys) > MAX_ENTRIES:
        raise BadRequest(
            f"{len(keys)} entries are cached for {model.name!r}, one file takes "
            f"{MAX_ENTRIES}: start with an empty store (POSKERNEL_CACHE) and compute what is "
            "wanted."
        )
    count = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        about = {"schema": SCHEMA, "model": model.model_dump(mode="json")}
        archive.writestr(MANIFEST, json.dumps(about))
        for key in keys:
            data = store.get_bytes(key)
            if data is not None:
                archive.writestr(key, data)
                count += 1
    return count


def import_archive(store: Store, source: Path) -> tuple[str, int]:
    """Read an exported file into the store; return the model's name and the number of entries.

    Raises:
        BadArchive: not an archive of ours, of another layout, too large, or damaged; nothing is
            written.
        BadRequest: the store cannot take it.
    """
    # One open file from beginning to end: what was checked is what is written.
    try:
        with _told(source), _opened(source, store.limit) as (archive, model):
            checked = _check_entries(archive, source)
            _write_entries(archive, checked, store, source)
    except BadArchive as error:
        raise BadArchive(f"{str(error).rstrip('.')}; nothing was imported.") from error
    return model, len(checked)


@contextmanager
def read_archive(source: Path) -> Iterator[ArchiveEntries]:
    """Open an exported file to read entries from it, importing none.

    Raises:
        BadArchive: not an archive of ours, of another layout, or damaged.
    """
    with ExitStack() as stack:
        with _told(source):
            archive, _ = stack.enter_context(_opened(source, None))
        yield ArchiveEntries(archive)


class ArchiveEntries:
    """The entries of an exported file, each checked when it is read."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = {info.filename for info in _entries(archive)}

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None where the entry is missing or damaged."""
        if key not in self._names:
            return None
        try:
            data = self._archive.read(key)
        except DAMAGE:
            return None
        return decode(data, key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with ``prefix``, in order."""
        return iter(sorted(name for name in self._names if name.startswith(prefix)))


@contextmanager
def _opened(source: Path, limit: int | None) -> Iterator[tuple[zipfile.ZipFile, str]]:
    """Open an exported file, its list of entries checked; also give the name of its model."""
    if not os.path.isfile(source):
        raise BadArchive(f"There is no file {str(source)!r}.")
    with source.open("rb") as file:
        _check_directory(file, source)
        with zipfile.ZipFile(file) as archive:
            model = _read_manifest(archive, source)
            _check_list(archive, os.fstat(file.fileno()).st_size, limit, source)
            yield archive, model


@contextmanager
def _told(source: Path) -> Iterator[None]:
    """Turn what a damaged file raises into a sentence."""
    try:
        yield
    except DAMAGE as error:
        raise BadArchive(
            f"{source.name!r} is not a file that 'export' wrote, or it is damaged."
        ) from error


def _check_directory(file: BinaryIO, source: Path) -> None:
    """Check the size of the zip's list of entries, which is read whole, before it is read.

    Raises:
        ValueError: no zip, or one that continues after its end.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - TAIL))
    tail = file.read(TAIL).rjust(TAIL, b"\0")
    end, locator, end_64 = tail[-END:], tail[-END - 20 : -END], tail[:56]
    if not end.startswith(b"PK\5\6"):
        raise ValueError("no zip")
    size = int.from_bytes(end[12:16], "little")
    if locator.startswith(b"PK\6\7") and end_64.startswith(
        b"PK\6\6"
    ):  # a zip of more than 4 GB, or of many entries
        size = int.from_bytes(end_64[40:48], "little")
    if size > MAX_DIRECTORY_BYTES:
        raise BadArchive(f"{source.name!r} lists more entries than 'export' ever writes.")
    file.seek(0)


def _read_manifest(archive: zipfile.ZipFile, source: Path) -> str:
    """Return the name of the model that an archive is about."""
    info = archive.getinfo(MANIFEST)
    if not _is_stored(info) or info.file_size > MAX_MANIFEST_BYTES:
        raise BadArchive(
            f"The manifest of {source.name!r} is compressed or larger than 1 MB, as 'export' never "
            "writes it."
        )
    about = parse_json(archive.read(info))
    if about["schema"] != SCHEMA:
        raise BadArchive(
            f"{source.name!r} has layout {str(about['schema'])[:20]}, this version reads {SCHEMA}: "
            "export it again with this version."
        )
    return ModelSpec.model_validate(about["model"]).name


def _check_list(archive: zipfile.ZipFile, held: int, limit: int | None, source: Path) -> None:
    """Check what the list of entries says of them, before any of them is read."""
    infos = _entries(archive)
    names = {info.filename for info in archive.infolist()}
    total = sum(info.file_size for info in infos)
    for info in infos:
        if not (KEY.fullmatch(info.filename) and _is_stored(info)):
            raise BadArchive(
                f"{source.name!r} holds an entry that 'export' never writes: "
                f"{info.filename[:100]!r}."
            )
    if not infos:
        raise BadArchive(f"{source.name!r} holds no entries.")
    if len(names) < len(archive.infolist()):
        raise BadArchive(f"{source.name!r} names an entry twice.")
    if total > held or max(info.file_size for info in infos) > MAX_ENTRY_BYTES:
        raise BadArchive(
            f"{source.name!r} lists entries that are larger than itself, or than any entry is."
        )
    if limit is not None and total > limit:
        raise BadRequest(
            f"{source.name!r} holds {total / 2**30:.3g} GB, the store takes "
            f"{limit / 2**30:.3g} GB: raise POSKERNEL_CACHE_GB and import it again."
        )


def _entries(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    return [info for info in archive.infolist() if info.filename != MANIFEST]


def _check_entries(archive: zipfile.ZipFile, source: Path) -> list[tuple[zipfile.ZipInfo, bytes]]:
    """Read every entry; return them with their checksums."""
    return [(info, _checksum(archive, info, source)) for info in _entries(archive)]


def _is_stored(info: zipfile.ZipInfo) -> bool:
    plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & ENCRYPTED
    return plain and info.file_size == info.compress_size


def _checksum(archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: Path) -> bytes:
    """Return the checksum in front of an entry that is whole and of our form."""
    data = archive.read(info)
    if decode(data, info.filename) is None:
        raise BadArchive(
            f"Entry {info.filename!r} of {source.name!r} is damaged, or is another entry."
        )
    return data[:DIGEST]


def _write_entries(
    archive: zipfile.ZipFile,
    checked: list[tuple[zipfile.ZipInfo, bytes]],
    store: Store,
    source: Path,
) -> None:
    for info, checksum in checked:
        data = archive.read(info)
        if data[:DIGEST] != checksum or not intact(data):
            raise BadRequest(f"{source.name!r} changed while it was read: import it again.")
        try:
            store.put_bytes(info.filename, data)
        except (OSError, sqlite3.DatabaseError) as error:
            raise BadRequest(
                f"The store cannot take all of {source.name!r} ({error}): make room and import "
                "it again."
            ) from error
