"""Write files atomically, so that they appear complete or not at all, and folders of files."""

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import BadRequest


def check_target(path: Path) -> None:
    """Check that a path can be a file and that its folder exists."""
    if not path.name or os.path.isdir(path):
        raise BadRequest(f"Expected the name of a file to write, got {str(path)!r}.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadRequest(
            f"Cannot write {str(path)!r}: it is a device, a pipe or a socket; name a file."
        )
    if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
        raise BadRequest(f"Cannot write {str(path)!r}: its folder does not exist.")


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, then rename it to ``path`` when it is complete.

    If ``path`` is a link, its target is written. With concurrent writers the last one wins.
    """
    check_target(path)
    place = Path(os.path.realpath(path))
    unfinished = place.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        try:
            write(unfinished)
            os.replace(unfinished, place)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise BadRequest(f"Cannot write {str(path)!r}: {error.strerror}.") from error


def check_folder(path: Path) -> None:
    """Check that a folder exists or could be created; creates nothing."""
    there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    number = 0
    if not os.path.isdir(there):
        number = errno.EEXIST if there == path else errno.ENOTDIR
    elif there != path and not os.access(there, os.W_OK | os.X_OK):
        number = errno.EACCES
    if number:
        raise BadRequest(f"Cannot make the folder {str(path)!r}: {os.strerror(number)}.")


def check_ours(folder: Path, name: str, mark: bytes) -> None:
    """Check that a folder, if it exists, is empty or an earlier export, so that nothing is lost."""
    with contextlib.suppress(OSError):
        if not os.path.isdir(folder) or not os.listdir(folder):
            return
        if mark in (folder / name).read_bytes():
            return
    raise BadRequest(
        f"{str(folder)!r} holds files that were not exported like this: name an empty folder, or "
        "one of an earlier export."
    )


def make_folder(path: Path) -> None:
    """Create a folder unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"Cannot make the folder {str(path)!r}: {error.strerror}.") from error


def write_tree(folder: Path, files: Iterable[tuple[str, Any]]) -> int:
    """Write files into a folder, by their relative names; return their number.

    Strings and bytes are written unchanged, other values as JSON.
    """
    written = 0
    for name, value in files:
        plain = isinstance(value, str | bytes)
        write_file(folder / name, value if plain else json.dumps(value, allow_nan=False))
        written += 1
    return written


def write_file(path: Path, data: str | bytes) -> None:
    """Write a file atomically, a text in UTF-8; its folder is created."""
    make_folder(path.parent)
    data = data if isinstance(data, bytes) else data.encode("utf-8")
    atomic_write(path, partial(Path.write_bytes, data=data))
