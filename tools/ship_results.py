"""Make the shipped results: those that the bundled models' pages show first.

    python tools/ship_results.py [MODEL ...]

Opens every page of each model at its default settings, computes the results it requests, and writes
`poskernel_core/demo/results/<model>.zip`. Results are cached in `build/shipped-cache`, so that an
interrupted run continues, and a run after a small change computes only what changed. The weights of
smollm2-135m are those that `make real-model` fetches.
"""

import json
import os
import sys
import time
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "shipped-cache"
REAL_MODEL = ROOT / "build" / "real-model"
"""Added to Python's path, as if the package in it were installed."""
os.environ["POSKERNEL_SHIPPED"] = "0"
os.environ["POSKERNEL_CACHE"] = str(CACHE)
sys.path[:0] = [str(ROOT)]

from recorded import visit_all

from poskernel_core.analyses import Experiment, find
from poskernel_core.common.differences import DIFFERENCES, STEP
from poskernel_core.common.result import Result
from poskernel_core.common.specs import DEFAULT_QUERY, Request
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import Plan, plan_of
from poskernel_core.engine.precomputed import first_questions
from poskernel_core.models.catalog import locate
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.models.known import telling_head
from poskernel_core.models.stored import MANIFEST, RESULTS, Shown
from poskernel_core.storage.encoding import Entry, encode
from poskernel_core.storage.shipped import ASKED_FILE, pack
from poskernel_core.storage.statistics import missing_statistics, statistics_keys
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import about, add, for_display

os.environ["PYTHONPATH"] = str(REAL_MODEL)  # for the worker process
sys.path[:0] = [str(REAL_MODEL)]

WITH_STATISTICS = ("demo-attn-2l", "demo-gpt2")
"""Models whose landing-page statistics are shipped too, without the differences of groups."""

VIEWS = {
    "smollm2-135m": Shown(
        context=512,
        windows=500,
        corpus="sample",
        start_token=True,
        dtype="float32",
        queries=(31, 63, 127, 191, 255, 319, 400, 511),
        skips=(0, 4),
    )
}
"""Models shipped without weights, with the run that is shown."""

PICTURES = ("stages",)
"""Results with large figures of one text and without errors; they are rounded like statistics."""

FINELY = 4
"""Factor by which results of computable models are stored more finely than for display."""

COARSE = 9
"""Bits of the mantissa of rounded statistics: a relative error of 0.1 % at most."""

FINER = {"mean_keys": 14, "mean_rows": 13}
"""Statistics that have the largest effect on kernels and their distance from observed attention."""

Pages = dict[str, dict[str, Request]]


def main() -> None:
    """Make the archives of the given models, or of all."""
    store = Store(CACHE)
    engine = Engine(store)
    try:
        for model in VIEWS:  # before any page looks the model up, so that it opens on this run
            file = CACHE / f"{model}.zip"
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr(MANIFEST, manifest(model))
            os.environ["POSKERNEL_MODELS"] = str(file)
        for model in sys.argv[1:] or [*VIEWS, *BUNDLED_MODELS]:
            began = time.monotonic()
            pages = dict(visit_all(model, lambda asked: answer(engine, asked)))
            if model in VIEWS:
                places = {name: import_module(f"pages.{name}.page").PLACE for name in pages}
                # Without weights, a page that needs them shows another model.
                pages = {n: each for n, each in pages.items() if places[n].needs != "weights"}
                pages["more"] = more(engine, model)
            size = write(store, model, pages)
            print(f"{model}: {size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        engine.close()


def answer(engine: Engine, asked: Plan) -> Result:
    """Return a result, waiting as long as it takes."""
    began = time.monotonic()
    found = engine.result(asked)
    assert found is not None  # no time limit was set
    print(f"  {asked.question.name}: {time.monotonic() - began:.1f} s", flush=True)
    return found


def manifest(model: str) -> str:
    """Return the manifest of a model's archive."""
    return json.dumps(about(locate(model), VIEWS[model]))


def more(engine: Engine, model: str) -> dict[str, Request]:
    """Compute further results, for servers without the weights; return their requests by key."""
    asked: dict[str, Request] = {}
    run, geometry, shown = describe_run(model), locate(model).geometry, VIEWS[model]
    wanted = first_questions(run, geometry, telling_head(model), experiments=False)
    wanted += [("verdicts", {}), ("head-measures", {"experiments": True})]
    for skip in shown.skips:
        wanted.append(("etc", {"skip": skip}))
        wanted += [("kernel", {"skip": skip, "query": query}) for query in shown.queries]
    for name, params in wanted:
        question = find(name)
        query = {"query": DEFAULT_QUERY} if "query" in question.params.model_fields else {}
        each = plan_of(question, run, question.params.model_validate(query | params))
        answer(engine, each)
        asked |= {part.key: part.request for part in each.parts.values() or [each]}
    return asked


def write(store: Store, model: str, pages: Pages) -> int:
    """Write the archive of a model; return its size in bytes."""
    results = {key for asked in pages.values() for key in asked}
    statistics = set()
    if model in WITH_STATISTICS:
        run = describe_run(model)
        assert not missing_statistics(store, run), "no page asked for the effective token count"
        statistics = set(statistics_keys(store, run))
    asked = {
        script: [request.model_dump(mode="json") for request in asked.values()]
        for script, asked in pages.items()
    }
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{model}.zip"
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        add(archive, ASKED_FILE, json.dumps(asked, indent=1).encode())
        if model in VIEWS:
            add(archive, MANIFEST, manifest(model).encode())
        for key in sorted(results | statistics):
            entry = store.get(key)
            assert entry is not None, key
            add(archive, key, encode(key, *lighter(entry, key in statistics, model)))
    os.replace(partial, target)
    return target.stat().st_size


def lighter(entry: Entry, is_statistics: bool, model: str) -> Entry:
    """Reduce the precision of an entry and pack it for shipping."""
    header, arrays = entry
    if not is_statistics:
        bits = dict.fromkeys(arrays, COARSE) if header["analysis"] in PICTURES else {}
        runs = isinstance(find(header["analysis"]), Experiment)
        if runs or model not in WITH_STATISTICS:  # others must match the shipped statistics
            entry = for_display(entry, 1 if model in VIEWS else FINELY)
        return pack(entry, bits)
    if "pass" in header:  # the manifest: no groups are shipped
        ungrouped = {"pass": header["pass"] | {"groups": 0}, "arrays": whole(header["arrays"])}
        header = header | ungrouped
    return pack((header, whole(arrays)), dict.fromkeys(arrays, COARSE) | FINER)


def whole(arrays: dict[str, Any]) -> dict[str, Any]:
    """Remove the arrays that hold differences of groups."""
    return {name: each for name, each in arrays.items() if not name.endswith((DIFFERENCES, STEP))}


if __name__ == "__main__":
    main()
