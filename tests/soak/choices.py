"""Random quick choices on a busy machine, some while a pass is in progress: none is lost.

``SOAK_SEQUENCES`` and ``SOAK_SEED`` choose others; a failure prints its seed and its sequence.
"""

import asyncio
import os
import subprocess
import sys

from tests.soak import SEED
from tests.support.quick_choices import run
from tests.support.server import serve

SEQUENCES = int(os.environ.get("SOAK_SEQUENCES", "300"))
BURN = "while True: pass"


def test_quick_choices_beside_other_work(tmp_path):
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2)]
    try:
        with serve(tmp_path / "cache", tmp_path / "server.log", shipped=True) as server:
            found = asyncio.run(run(server.url, SEQUENCES, SEED, tabs=4, passes=True))
    finally:
        for process in burning:
            process.kill()
            process.wait()
    assert not found, "\n".join(found)
