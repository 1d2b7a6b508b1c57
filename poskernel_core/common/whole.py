"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from poskernel_core.common.errors import BadRequest

__all__ = ["check_target", "write_whole"]


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
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        write(partial)
        os.replace(partial, path)
    except OSError as error:
        raise BadRequest(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    finally:
        if os.path.lexists(partial):
            partial.unlink()
