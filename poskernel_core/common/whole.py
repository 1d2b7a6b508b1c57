"""Files that appear whole or not at all, and folders of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import BadRequest

__all__ = ["check_folder", "check_target", "write_tree", "write_whole"]


def check_target(path: Path) -> None:
    """Check that a name is that of a file, and that its folder exists.

    Raises:
        BadRequest: no name, a folder, or a name in a folder that does not exist.
    """
    if not path.name or os.path.isdir(path):
        raise BadRequest(f"Expected the name of a file to write, got {str(path)!r}.")
    if not os.path.isdir(path.parent):
        raise BadRequest(f"Cannot write {str(path)!r}: its folder does not exist.")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written next to its place, and moved there once it is complete.

    Raises:
        BadRequest: it cannot be written.
    """
    check_target(path)
    unfinished = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise BadRequest(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    finally:
        if os.path.lexists(unfinished):
            unfinished.unlink()


def check_folder(path: Path) -> None:
    """Check that a folder exists or can be made.

    Raises:
        BadRequest: a file has its name, or it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"Cannot make the folder {str(path)!r}: {error.strerror}.") from error


def write_tree(folder: Path, files: Iterable[tuple[str, Any]]) -> int:
    """Write files into a folder, by their names in it; return how many there are.

    Texts and bytes are written as they are, all else as JSON.

    Raises:
        BadRequest: one cannot be written.
    """
    count = 0
    for name, value in files:
        target = folder / name
        check_folder(target.parent)
        text = value if isinstance(value, str | bytes) else json.dumps(value, allow_nan=False)
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        write_whole(target, partial(_write, data))
        count += 1
    return count


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)
