"""A damaged store: bytes changed and files cut, in entries and in the database."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.soak.trial import BOUND, Options, engine_at, etc, need, same_values

TEXTS, CONTEXT = 4, 256
Damage = Callable[[random.Random, Path], None]


def damaged(options: Options, folder: Path) -> str:
    """Bytes changed and files cut, in entries and in the database: the numbers stay right."""
    draw, base = random.Random(options.seed), etc(TEXTS, context=CONTEXT)
    kernel = {"analysis": "kernel", "params": {"query": CONTEXT - 1}}
    asked = [
        base,
        *(base.model_copy(update=change) for change in (kernel, {"analysis": "profile"})),
    ]
    with engine_at(folder / "whole") as engine:
        truth = [engine.result(request, BOUND) for request in asked]
    ways, failed = list(WAYS), []
    for number in range(options.damages):
        way = ways[number % len(ways)]
        place = Path(shutil.copytree(folder / "whole", folder / f"damaged{number}"))
        WAYS[way](draw, place)
        try:
            with engine_at(place) as engine:
                results = [engine.result(request, BOUND) for request in asked]
            need(all(map(same_values, truth, results)), "other numbers")
        except Exception as error:
            failed.append(f"{way}: {error!r}"[:160])
    said = f"{options.damages - len(failed)} of {options.damages} stores answer rightly"
    need(not failed, f"{said}; {'; '.join(failed)}")
    return said


def _change(draw: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(8):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    file.write_bytes(data)


def _cut(draw: random.Random, file: Path) -> None:
    os.truncate(file, draw.randrange(file.stat().st_size))


def _entry(change: Callable[[random.Random, Path], None]) -> Damage:
    return lambda draw, place: change(draw, draw.choice(sorted(place.rglob("*.val"))))


def _database(change: Callable[[random.Random, Path], None]) -> Damage:
    return lambda draw, place: change(draw, place / "cache.db")


WAYS: dict[str, Damage] = {
    "an entry's bytes changed": _entry(_change),
    "the database's bytes changed": _database(_change),
    "an entry cut": _entry(_cut),
    "the database cut": _database(_cut),
    "an entry's file gone": _entry(lambda draw, file: file.unlink()),
    "the database's first page changed": _database(
        lambda draw, file: file.write_bytes(draw.randbytes(512) + file.read_bytes()[512:])
    ),
    "the database gone": _database(lambda draw, file: file.unlink()),
    "the database emptied": _database(lambda draw, file: os.truncate(file, 0)),
}
