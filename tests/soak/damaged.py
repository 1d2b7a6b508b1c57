"""A damaged store: bytes changed and files cut, in entries and in the database."""

import os
import random
import shutil
from itertools import islice, product

from tests.soak import BOUND, SEED, bits, engine_at, request

DAMAGES = int(os.environ.get("SOAK_DAMAGES", "16"))
CONTEXT = 256


def change(draw, file):
    data = bytearray(file.read_bytes())
    for _ in range(8):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    file.write_bytes(data)


WAYS = {
    "bytes changed": change,
    "cut": lambda draw, file: os.truncate(file, draw.randrange(file.stat().st_size)),
    "first page changed": lambda draw, file: file.write_bytes(
        draw.randbytes(512) + file.read_bytes()[512:]
    ),
    "gone": lambda draw, file: file.unlink(),
    "emptied": lambda draw, file: os.truncate(file, 0),
}


def answers(place):
    """The bits of three answers from a store; what it lacks is computed."""
    base = request(4, context=CONTEXT)
    kernel = {"analysis": "kernel", "params": {"query": CONTEXT - 1}}
    asked = [base, *(base.model_copy(update=each) for each in (kernel, {"analysis": "profile"}))]
    with engine_at(place) as engine:
        return [bits(engine.result(each, BOUND).values) for each in asked]


def test_the_numbers_stay_right(tmp_path):
    draw, truth, failed = random.Random(SEED), answers(tmp_path / "whole"), []
    for number, how, files in islice(product(range(DAMAGES), WAYS, ("*.val", "cache.db")), DAMAGES):
        place = tmp_path / f"{number} {how} {files[-3:]}"
        shutil.copytree(tmp_path / "whole", place)
        WAYS[how](draw, draw.choice(sorted(place.rglob(files))))
        try:
            assert truth == answers(place), "other numbers"
        except Exception as error:
            failed.append(f"{how}, {files}: {error!r}"[:160])
    print(f"\n{DAMAGES - len(failed)} of {DAMAGES} stores answer rightly")
    assert not failed
