"""Make the shipped results: those that the bundled models' pages show first.

    python tools/ship_results.py [MODEL ...]

Opens every page of each model at its default settings, computes the results that it requests, and
those of the tutorial's circuits, that are not there, and writes them to
`poskernel_core/demo/results/<model>/`. What is there already stays as it is, byte for byte; what is
requested no more is removed. A question whose `precomputed` is "never" is requested only by a page
that asks for it when it opens, not as a measure or behind a button, so a new one changes nothing
here. Results are cached in `build/shipped-cache`, so that an interrupted run continues. The weights
of smollm2-135m-instruct-q4 are those that `make real-model` fetches; without them its results stay
as they are, and what is missing of them is said. Last, `configurations.json` tells machines without
transformers what the bundled models' configurations mean.
"""

import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "shipped-cache"
REAL_MODEL = ROOT / "build" / "real-model"
"""Added to Python's path, as if the package in it were installed."""
sys.path[:0] = [str(ROOT)]

from poskernel_core.analyses import Experiment, find
from poskernel_core.common.atomic_write import write_file
from poskernel_core.common.differences import DIFFERENCES, STEP
from poskernel_core.common.errors import BadArchive
from poskernel_core.common.result import Result
from poskernel_core.common.specs import DEFAULT_QUERY, Request
from poskernel_core.engine.checkpoints import first_questions
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import Plan, plan_of
from poskernel_core.forward.configuration import read as read_geometry
from poskernel_core.models import configuration
from poskernel_core.models.catalog import locate
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.models.known import telling_head
from poskernel_core.models.stored import ENTRY, MANIFEST, RESULTS, Shown, packaged_file
from poskernel_core.models.stored import read as read_results
from poskernel_core.storage.encoding import Entry, compressed, encode
from poskernel_core.storage.shipped import ASKED_FILE, Shipped, address
from poskernel_core.storage.statistics import alone, statistics_keys
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import SINGLE, SMALL, about, for_display, rounded
from tools.recorded import precomputed, visit_all

WITH_STATISTICS = ("demo-attn-2l", "demo-gpt2")
"""Models whose landing-page statistics are shipped too, without the differences of groups."""

VIEWS = {
    "smollm2-135m-instruct-q4": Shown(
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

CIRCUITS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "demo-gpt2": [
        ("faithfulness", {"maker": "copying"}),
        ("edges", {"maker": "copying"}),
        ("edges", {"maker": "copying", "head": "L3H7"}),
    ],
    "smollm2-135m-instruct-q4": [
        ("patch-heads", {"maker": "names"}),
        ("patch-positions", {"maker": "names", "head": "L23H3"}),
        ("faithfulness", {"maker": "names"}),
        ("edges", {"maker": "names"}),
        ("edges", {"maker": "names", "head": "L23H3"}),
    ],
}
"""The tutorial's circuits: questions about a set of pairs, with parameters."""

PICTURES = ("stages",)
"""Results with large figures of one text and without errors; they are rounded like statistics."""

FINELY = 4
"""Factor by which results of computable models are stored more finely than for display."""

COARSE = 9
"""Bits of the mantissa of rounded statistics: a relative error of 0.1 % at most."""

FINER = {"mean_keys": 14, "mean_rows": 13}
"""Statistics that have the largest effect on kernels and their distance from observed attention."""

TAKEN = "taken"
"""Marks a result that was shipped before, and so is rounded already."""

Pages = dict[str, dict[str, Request]]


def main() -> None:
    os.environ["POSKERNEL_SHIPPED"], os.environ["POSKERNEL_CACHE"] = "0", str(CACHE)
    os.environ["PYTHONPATH"] = str(REAL_MODEL)  # for the worker process
    sys.path[:0] = [str(REAL_MODEL)]
    store = Store(CACHE)
    take(store)
    engine = Engine(store)
    try:
        for model in VIEWS:  # before any page looks the model up, so that it opens on this run
            file = CACHE / f"{model}.zip"
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr(MANIFEST, manifest(model))
            os.environ["POSKERNEL_MODELS"] = str(file)
        for model in sys.argv[1:] or [*VIEWS, *BUNDLED_MODELS]:
            began = time.monotonic()
            if locate(model).away:
                print(f"{model}: {left(store, model)}", flush=True)
                continue
            pages = dict(visit_all(model, partial(answer, engine), weights=model not in VIEWS))
            for plan in more(model):
                answer(engine, plan)
                pages.setdefault("more", {})[plan.key] = plan.request
            new, gone = write(store, model, pages)
            took = time.monotonic() - began
            print(f"{model}: {new} entries are new, {gone} removed, {took:.0f} s", flush=True)
    finally:
        engine.close()
    configuration.SHIPPED.write_text(json.dumps(configurations()) + "\n", "utf-8")


def configurations() -> dict[str, Any]:
    """Return the geometry of every bundled model's configuration, by its hash."""
    files = [file for folder in BUNDLED_MODELS.values() for file in folder.rglob("config.json")]
    configs = [json.loads(file.read_text("utf-8")) for file in files]
    for file in RESULTS.iterdir():
        with suppress(BadArchive):  # without a model of their own
            configs.append(dict(read_results(file).config))
    texts = {json.dumps(each, sort_keys=True): each for each in configs}
    return {
        configuration.digest(text): read_geometry("a bundled model", config).as_json()
        for text, config in sorted(texts.items())
        if configuration.model_type(config) != "attn-only"
    }


def take(store: Store) -> None:
    """Copy the results that are there into a store; statistics, which are rounded, are not."""
    there = Shipped(sorted(RESULTS.glob("*")))
    for key, header in there.headers():
        if "analysis" in header and not store.has(key):
            entry = there.get(key)
            if entry is not None:
                store.put(key, entry[0] | {TAKEN: True}, entry[1])


def left(store: Store, model: str) -> str:
    lacks = sorted({plan.question.name for plan in more(model) if not store.has(plan.key)})
    told = "left as it is: its weights are not here ('make real-model' brings them)"
    if not lacks:
        return told
    return f"{told}. Until then it lacks {', '.join(lacks)}: begin with 'precomputed' as 'never'"


def answer(engine: Engine, asked: Plan) -> Result:
    began = time.monotonic()
    found = engine.result(asked)
    assert found is not None  # no time limit was set
    print(f"  {asked.question.name}: {time.monotonic() - began:.1f} s", flush=True)
    return found


def manifest(model: str) -> str:
    if packaged_file(model) is None:
        return (RESULTS / model / MANIFEST).read_text("utf-8")
    return json.dumps(about(locate(model), VIEWS[model]), indent=1) + "\n"


def more(model: str) -> Iterator[Plan]:
    """Yield the plans of further results: of a circuit, and for servers without the weights."""
    run, wanted = describe_run(model), [*CIRCUITS.get(model, [])]
    if model in VIEWS:
        geometry, shown = locate(model).geometry, VIEWS[model]
        wanted += first_questions(run, geometry, telling_head(model), experiments=False)
        wanted += [("verdicts", {}), ("head-measures", {"experiments": True})]
        for skip in shown.skips:
            wanted.append(("etc", {"skip": skip}))
            wanted += [("kernel", {"skip": skip, "query": query}) for query in shown.queries]
        wanted += [("kernel-replicates", {}), ("conversations", {})]  # of any head
    for name, params in wanted:
        question = find(name)
        query = {"query": DEFAULT_QUERY} if "query" in question.params.model_fields else {}
        each = plan_of(question, run, question.params.model_validate(query | params))
        yield from filter(precomputed, each.parts.values()) if each.parts else [each]


def write(store: Store, model: str, pages: Pages) -> tuple[int, int]:
    """Write what is new of a model and remove what is stale; return the numbers of entries."""
    folder = RESULTS / model
    folder.mkdir(parents=True, exist_ok=True)
    there = Shipped([folder])
    results = {key for asked in pages.values() for key in asked}
    statistics = statistics_of(model, there, store) if model in WITH_STATISTICS else set()
    asked = {
        script: [request.model_dump(mode="json") for request in asked.values()]
        for script, asked in pages.items()
    }
    lines = (f"{json.dumps(page)}: {json.dumps(requests)}" for page, requests in asked.items())
    texts = {ASKED_FILE: "{\n" + ",\n".join(lines) + "\n}\n"}
    if model in VIEWS:
        texts[MANIFEST] = manifest(model)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    keys = results | statistics
    new = [key for key in sorted(keys) if there.get(key) is None]
    wanted = {address(key) for key in keys if key not in new}
    old = [
        file
        for file in folder.glob(f"*{ENTRY}")
        if address(file.name.removesuffix(ENTRY)) not in wanted
    ]
    for file in old:
        file.unlink()
    for key in new:
        entry = store.get(key)
        assert entry is not None, key
        data = compressed(encode(key, *lighter(entry, key in statistics, model)))
        write_file(folder / f"{key}{ENTRY}", data)
    return len(new), len(old)


def statistics_of(model: str, there: Shipped, store: Store) -> set[str]:
    """Return the keys of a model's statistics: of those that are there, else of the store's."""
    run, keys = describe_run(model), set()
    for statistic in run.gather:
        one = alone(run, statistic)
        found = statistics_keys(there, one) or statistics_keys(store, one)
        assert found, f"no page asked for the {statistic} of {model}"
        keys.update(found)
    return keys


def lighter(entry: Entry, is_statistics: bool, model: str) -> Entry:
    header, arrays = entry
    if header.get(TAKEN):
        return {name: each for name, each in header.items() if name != TAKEN}, arrays
    if not is_statistics:
        bits = dict.fromkeys(arrays, COARSE) if header["analysis"] in PICTURES else {}
        runs = isinstance(find(header["analysis"]), Experiment)
        if runs or model not in WITH_STATISTICS:  # others must match the shipped statistics
            entry = for_display(entry, 1 if model in VIEWS else FINELY)
        return entry[0], coarser(entry[1], bits)
    if "pass" in header:  # the manifest: no groups are shipped
        ungrouped = {"pass": header["pass"] | {"groups": 0}, "arrays": whole(header["arrays"])}
        header = header | ungrouped
    return header, coarser(whole(arrays), dict.fromkeys(arrays, COARSE) | FINER)


def coarser(arrays: Mapping[str, np.ndarray], bits: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Round large arrays of floats to single precision, of ``bits[name]`` bits of the mantissa.

    Their types stay; the lowest bytes, which are zero, compress to nothing.
    """
    return {
        name: rounded(array.astype(np.float32), bits.get(name, SINGLE)).astype(array.dtype)
        if array.size >= SMALL and array.dtype.kind == "f"
        else array
        for name, array in arrays.items()
    }


def whole(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in arrays.items() if not name.endswith((DIFFERENCES, STEP))}


if __name__ == "__main__":
    main()
