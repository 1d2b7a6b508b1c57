"""Make what comes with the project: the results that the bundled models' pages show first.

    python tools/ship_results.py [MODEL ...]

Opens every page of each model at its default settings, computes what it asks for, and writes
`poskernel_core/demo/results/<model>.zip`. What is computed is kept in `build/shipped-cache`, so
that a run that was stopped goes on where it was, and one after a small change computes that only.
"""

import json
import os
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "shipped-cache"
os.environ["POSKERNEL_SHIPPED"] = "0"
sys.path[:0] = [str(ROOT)]

from recorded import visit_all  # noqa: E402

from poskernel_core.common.result import Result  # noqa: E402
from poskernel_core.common.specs import Request  # noqa: E402
from poskernel_core.engine.engine import Engine, describe_run  # noqa: E402
from poskernel_core.engine.requests import CanonicalRequest  # noqa: E402
from poskernel_core.models.catalog import BUNDLED_MODELS  # noqa: E402
from poskernel_core.storage.encoding import encode  # noqa: E402
from poskernel_core.storage.shipped import ASKED_FILE, DIRECTORY, pack  # noqa: E402
from poskernel_core.storage.statistics import (  # noqa: E402
    missing_statistics,
    statistics_keys,
)
from poskernel_core.storage.store import Store  # noqa: E402

PICTURES = ("stages",)
"""Results that are large pictures of one text, without errors: rounded as statistics are."""

COARSE = 9
"""Bits of the mantissa that statistics are rounded to: a relative error of 0.1 % at most."""

FINER = {"mean_keys": 14, "mean_rows": 13}
"""Statistics that a kernel, or its distance from observed attention, depends on the most."""

THOROUGH = 1_000_000
"""Bytes of an entry from which the slower compression is worth its time."""

LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every entry, so that equal entries make equal files."""

Pages = dict[str, dict[str, Request]]


def main() -> None:
    """Make the archives of the models named, or of all."""
    store = Store(CACHE)
    engine = Engine(store)
    try:
        for model in sys.argv[1:] or BUNDLED_MODELS:
            began = time.monotonic()
            pages = dict(visit_all(model, lambda asked: answer(engine, asked)))
            size = write(store, model, pages)
            print(f"{model}: {size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        engine.close()


def answer(engine: Engine, asked: CanonicalRequest) -> Result:
    """Return a result, however long it takes."""
    began = time.monotonic()
    found = engine.result(asked)
    assert found is not None  # no time limit was set
    print(f"  {asked.question.name}: {time.monotonic() - began:.1f} s", flush=True)
    return found


def write(store: Store, model: str, pages: Pages) -> int:
    """Write the archive of a model; return its size in bytes."""
    results = {key for asked in pages.values() for key in asked}
    run = describe_run(model)
    assert not missing_statistics(store, run), "no page asked for the effective token count"
    statistics = set(statistics_keys(store, run))
    asked = {
        script: [request.model_dump(mode="json") for request in asked.values()]
        for script, asked in pages.items()
    }
    DIRECTORY.mkdir(exist_ok=True)
    target = DIRECTORY / f"{model}.zip"
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        add(archive, ASKED_FILE, json.dumps(asked, indent=1).encode())
        for key in sorted(results | statistics):
            entry = store.get(key)
            assert entry is not None, key
            coarse = key in statistics or entry[0].get("analysis") in PICTURES
            bits = dict.fromkeys(entry[1], COARSE) | FINER if coarse else {}
            add(archive, key, encode(key, *pack(entry, bits)))
    os.replace(partial, target)
    return target.stat().st_size


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add one entry, the same way on every machine."""
    info = zipfile.ZipInfo(name, LONG_AGO)
    how = zipfile.ZIP_LZMA if len(data) > THOROUGH else zipfile.ZIP_DEFLATED
    info.compress_type, info.external_attr = how, 0o644 << 16
    archive.writestr(info, data, compresslevel=9)


if __name__ == "__main__":
    main()
