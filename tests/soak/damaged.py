"""A damaged store: bytes changed and files cut, in entries and in the database."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path

from tests.soak.trial import BOUND, Options, engine_at, etc, need, same_values

TEXTS, CONTEXT = 4, 256


def damaged(options: Options, folder: Path) -> str:
    """Bytes changed and files cut, in entries and in the database: the numbers stay right."""
    draw, base = random.Random(options.seed), etc(TEXTS, context=CONTEXT)
    kernel = {"analysis": "kernel", "params": {"query": CONTEXT - 1}}
    asked = [base, *(base.model_copy(update=each) for each in (kernel, {"analysis": "profile"}))]
    with engine_at(folder / "whole") as engine:
        truth = [engine.result(request, BOUND) for request in asked]
    rounds, failed = product(range(options.damages), DAMAGES, ("*.val", "cache.db")), []
    for number, how, files in islice(rounds, options.damages):
        place = Path(shutil.copytree(folder / "whole", folder / f"{number} {how} {files[-3:]}"))
        DAMAGES[how](draw, draw.choice(sorted(place.rglob(files))))
        try:
            with engine_at(place) as engine:
                results = [engine.result(request, BOUND) for request in asked]
            need(all(map(same_values, truth, results)), "other numbers")
        except Exception as error:
            failed.append(f"{how}, {files}: {error!r}"[:160])
    said = f"{options.damages - len(failed)} of {options.damages} stores answer rightly"
    need(not failed, f"{said}; {'; '.join(failed)}")
    return said


def _change(draw: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(8):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[random.Random, Path], object]] = {
    "bytes changed": _change,
    "cut": lambda draw, file: os.truncate(file, draw.randrange(file.stat().st_size)),
    "first page changed": lambda draw, file: file.write_bytes(
        draw.randbytes(512) + file.read_bytes()[512:]
    ),
    "gone": lambda draw, file: file.unlink(),
    "emptied": lambda draw, file: os.truncate(file, 0),
}
