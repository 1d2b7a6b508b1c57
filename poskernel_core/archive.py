"""``export`` and ``import``: all that was computed from one model, as one file.

The file is an uncompressed zip of the store's own entries, each behind its checksum. An import
is checked whole before anything is written, and nothing in it can run code.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import zipfile
import zlib
from pathlib import Path

from poskernel_core.catalog import Located
from poskernel_core.config import SCHEMA, model_prefix
from poskernel_core.errors import BadArchive, BadRequest
from poskernel_core.store import Store, decode, intact

__all__ = ["export_model", "import_archive"]

MANIFEST = "poskernel.json"
KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}")
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a zip file with a changed byte can raise."""

MAX_ENTRY_BYTES = 4 * 2**30


def export_model(store: Store, located: Located, target: Path) -> int:
    """Write everything computed from a model to one file; return the number of entries.

    The file appears whole or not at all.

    Raises:
        BadRequest: nothing is cached for the model, or the file cannot be written.
    """
    keys = sorted(store.keys(model_prefix(located.spec.fingerprint)))
    if not keys:
        raise BadRequest(
            f"Nothing is cached for {located.spec.name!r} yet: run 'precompute "
            f"{located.spec.name}' first."
        )
    partial = target.with_name(target.name + ".partial")
    try:
        count = _write(store, keys, located, partial)
        os.replace(partial, target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise BadRequest(f"Cannot write {str(target)!r}: {error.strerror}.") from error
    return count


def _write(store: Store, keys: list[str], located: Located, path: Path) -> int:
    count = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        about = {"schema": SCHEMA, "model": located.spec.model_dump(mode="json")}
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
        BadArchive: not an archive of ours, of another layout, or damaged; nothing is written.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            about = json.loads(archive.read(MANIFEST))
            if about["schema"] != SCHEMA:
                raise BadArchive(
                    f"{source.name!r} has layout {about['schema']}, this version reads {SCHEMA}: "
                    "export it again with the same version."
                )
            model = str(about["model"]["name"])
            names = [info.filename for info in archive.infolist() if info.filename != MANIFEST]
            for name in names:
                _check(archive, name, source)
    except FileNotFoundError as error:
        raise BadArchive(f"No file {str(source)!r} to import.") from error
    except DAMAGE as error:
        raise BadArchive(
            f"{source.name!r} is not a file that 'export' wrote, or it is damaged; nothing was "
            "imported."
        ) from error
    with zipfile.ZipFile(source) as archive:
        for name in names:
            try:
                store.put_bytes(name, archive.read(name))
            except (OSError, sqlite3.DatabaseError) as error:
                raise BadRequest(
                    f"The store cannot take all of {source.name!r} ({error}): make room and import "
                    "it again."
                ) from error
    return model, len(names)


def _check(archive: zipfile.ZipFile, name: str, source: Path) -> None:
    info = archive.getinfo(name)
    ours = KEY.fullmatch(name) and info.compress_type == zipfile.ZIP_STORED
    if not ours or info.file_size > MAX_ENTRY_BYTES:
        raise BadArchive(f"{source.name!r} holds an entry that 'export' never writes: {name!r}.")
    data = archive.read(name)
    if not intact(data) or decode(data) is None:
        raise BadArchive(f"Entry {name!r} of {source.name!r} is damaged; nothing was imported.")
