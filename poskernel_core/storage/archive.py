"""``export`` and ``import``: everything computed from a model, as one file.

The file is an uncompressed zip of the store's entries, each preceded by its checksum. An import
checks the sizes before reading and all entries before writing. Nothing in the file can run code.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from poskernel_core.common.atomic_write import atomic_write, check_target
from poskernel_core.common.errors import BadArchive, BadRequest
from poskernel_core.common.files import ZIP_DAMAGE, is_file, is_folder, parse_json
from poskernel_core.common.specs import SCHEMA, ModelSpec, model_prefix
from poskernel_core.models.attached import describe, description, versions_of
from poskernel_core.models.catalog import OWN_NAME, Located, is_taken
from poskernel_core.models.positions import keep_use, position_use, read_use
from poskernel_core.models.stored import MANIFEST, MAX_MANIFEST_BYTES, StoredModel
from poskernel_core.storage.disk import DATABASE
from poskernel_core.storage.encoding import Entry, decode
from poskernel_core.storage.shards import Source
from poskernel_core.storage.store import Store

KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}")
MAX_ENTRY_BYTES = 4 * 2**30
MAX_ENTRIES = 100_000
ENCRYPTED = 1


def export_model(store: Store, located: Located, target: Path) -> int:
    """Write everything computed from a model to one file; return the number of entries.

    The file is written atomically.
    """
    check_target(target)
    prints = versions_of(located.spec.name) or [located.spec.fingerprint]
    keys = [key for print_ in prints for key in store.keys(model_prefix(print_))]
    if not keys:
        raise BadRequest(
            f"Nothing is cached for {located.spec.name!r} yet: run 'precompute "
            f"{located.spec.name}' first."
        )
    return export_entries(store, keys, located.spec, target)


def export_entries(store: Store, keys: Sequence[str], model: ModelSpec, target: Path) -> int:
    """Write some entries of a model to one file; return the number written."""
    if len(keys) > MAX_ENTRIES:
        raise BadRequest(
            f"{len(keys)} entries are cached for {model.name!r}, one file takes {MAX_ENTRIES}: "
            "start with an empty store (POSKERNEL_CACHE) and compute what is wanted."
        )
    written = []

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            use = position_use(model.fingerprint)
            about = {"schema": SCHEMA, "model": model.model_dump(mode="json")}
            about |= use.as_manifest() if use else {}
            about |= {"attached": described} if (described := description(model.name)) else {}
            archive.writestr(MANIFEST, json.dumps(about))
            for key in keys:
                if (data := store.get_bytes(key)) is not None:
                    archive.writestr(key, data)
                    written.append(key)

    atomic_write(target, write)
    return len(written)


def import_archive(store: Store, source: Path) -> tuple[str, int]:
    """Read an exported file into the store; return the model's name and the number of entries."""
    try:
        # Keep the file open, so that the checked bytes are those that are written.
        with Archive(source) as archive:
            keys = list(archive.keys())
            if archive.size > store.limit:
                raise BadRequest(
                    f"{source.name!r} holds {archive.size / 2**30:.3g} GB, the store takes "
                    f"{store.limit / 2**30:.3g} GB: raise POSKERNEL_CACHE_GB and import it again."
                )
            if damaged := next((key for key in keys if archive.get_bytes(key) is None), None):
                raise BadArchive(
                    f"Entry {damaged!r} of {source.name!r} is damaged, or is another entry."
                )
            for key in keys:
                data = archive.get_bytes(key)
                if data is None:
                    raise BadRequest(f"{source.name!r} changed while it was read: import it again.")
                store.put_bytes(key, data)
            if archive.attached is not None:
                describe(archive.attached)
            if archive.positions is not None:
                for print_ in versions_of(archive.model) or [archive.fingerprint]:
                    keep_use(print_, archive.positions)
            return archive.model, len(keys)
    except BadArchive as error:
        raise BadArchive(f"{str(error).rstrip('.')}; nothing was imported.") from error


class Archive:
    """The entries of an exported file; each is checked when it is read.

    Attributes:
        model, fingerprint: the model's name and its fingerprint.
        positions: how the running model used positions; None if the file does not say.
        attached: the description of a model that is an object elsewhere, or of a training run.
        size: total size of the entries in bytes.
    """

    def __init__(self, source: Path) -> None:
        if not os.path.isfile(source):
            raise BadArchive(f"There is no file {str(source)!r}.")
        with ExitStack() as stack:
            try:
                self._zip = stack.enter_context(zipfile.ZipFile(source))
                about = self._read_manifest(source.name)
                model = ModelSpec.model_validate(about["model"])
                self.model, self.fingerprint = model.name, model.fingerprint
                self.positions = read_use(about.get("positions"))
                self.attached: dict[str, Any] | None = about.get("attached")
                if self.attached is not None:
                    stored_model = StoredModel.model_validate({**self.attached, "file": source})
                    if stored_model.attached is None or stored_model.geometry is None:
                        raise ValueError("it describes no attached model")
                    if (name := stored_model.spec.name) != self.model or not _is_own(name):
                        raise ValueError("it describes another model")
                self.size = self._check_list(source)
            except ZIP_DAMAGE as error:
                raise BadArchive(
                    f"{source.name!r} is not a file that 'export' wrote, or it is damaged."
                ) from error
            self._stack = stack.pop_all()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None if the entry is missing or damaged."""
        with suppress(*ZIP_DAMAGE):
            return decode(self._zip.read(key), key)
        return None

    def get_bytes(self, key: str) -> bytes | None:
        """Return an entry's bytes; None if it is missing or damaged."""
        with suppress(*ZIP_DAMAGE):
            data = self._zip.read(key)
            return None if decode(data, key) is None else data
        return None

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys with this prefix, in order."""
        return iter(sorted(i.filename for i in self._entries() if i.filename.startswith(prefix)))

    def _entries(self) -> list[zipfile.ZipInfo]:
        return [info for info in self._zip.infolist() if info.filename != MANIFEST]

    def _read_manifest(self, name: str) -> Any:
        info = self._zip.getinfo(MANIFEST)
        if not _is_stored(info) or info.file_size > MAX_MANIFEST_BYTES:
            raise BadArchive(
                f"The manifest of {name!r} is compressed or larger than 1 MB, as 'export' never "
                "writes it."
            )
        about = parse_json(self._zip.read(info))
        if about["schema"] != SCHEMA:
            raise BadArchive(
                f"{name!r} has layout {str(about['schema'])[:20]}, this version reads {SCHEMA}: "
                "export it again with this version."
            )
        return about

    def _check_list(self, source: Path) -> int:
        entries, name = self._entries(), source.name
        sizes = [info.file_size for info in entries]
        for info in entries:
            if not (KEY.fullmatch(info.filename) and _is_stored(info)):
                raise BadArchive(
                    f"{name!r} holds an entry that 'export' never writes: {info.filename[:100]!r}."
                )
        if not 0 < len(entries) <= MAX_ENTRIES:
            raise BadArchive(f"{name!r} holds no entries, or more than {MAX_ENTRIES}.")
        if len(self._zip.NameToInfo) < len(self._zip.infolist()):
            raise BadArchive(f"{name!r} names an entry twice.")
        if sum(sizes) > source.stat().st_size or max(sizes) > MAX_ENTRY_BYTES:
            raise BadArchive(
                f"{name!r} lists entries that are larger than itself, or than any entry is."
            )
        return sum(sizes)


def _is_own(name: str) -> bool:
    return OWN_NAME.fullmatch(name) is not None and not is_taken(name)


def _is_stored(info: zipfile.ZipInfo) -> bool:
    plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & ENCRYPTED
    return plain and info.file_size == info.compress_size


@contextmanager
def open_sources(places: Sequence[Path]) -> Iterator[dict[str, Source]]:
    """Open exported files, folders of such files, and stores, to read shards; keyed by name."""
    with ExitStack() as stack:
        sources: dict[str, Source] = {}
        for place in places:
            if is_file(place / DATABASE):
                store = Store(place)
                stack.callback(store.close)
                sources[str(place)] = store
                continue
            files = sorted(place.glob("[!.]*.zip")) if is_folder(place) else [place]
            if not files:
                raise BadRequest(
                    f"Expected a store or exported files (.zip) in {str(place)!r}, found neither."
                )
            for file in files:
                sources[str(file)] = stack.enter_context(Archive(file))
        yield sources
