"""Small disks, full disks and disks that cannot be written, for tests of the store."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def file_of(directory: Path, key: str) -> Path:
    """The file of an entry of a store, which the database names."""
    with sqlite3.connect(directory / "cache.db") as database:
        query = "SELECT filename FROM Cache WHERE key = ?"
        ((name,),) = database.execute(query, (key,)).fetchall()
    database.close()
    return directory / name


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own, a few megabytes large; it takes the rights to mount one."""
    place.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """The same directory, in which nothing can be written, not even by root."""
    _mount("--bind", str(place), str(place))
    try:
        _mount("-o", "remount,ro,bind", str(place))
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def fill(place: Path) -> Path:
    """Leave no byte free on a small disk; return the file that takes the room."""
    file = place / "filler"
    with file.open("wb", buffering=0) as stream:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue
    return file


def _mount(*arguments: str) -> None:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small disk takes the rights of root")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
