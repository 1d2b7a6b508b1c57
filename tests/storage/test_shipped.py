"""What comes with the project: read beneath the store, whole, not stale, and right."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pages.shared.jobs import results
from poskernel_core import analyses
from poskernel_core.analyses import find
from poskernel_core.analyses.kernels.formulas import classify
from poskernel_core.common.specs import Request, model_prefix
from poskernel_core.data import corpora
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import from_entry
from poskernel_core.models import catalog, curated, fragments
from poskernel_core.models.stored import ENTRY as SUFFIX
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.encoding import compressed, encode
from poskernel_core.storage.shipped import ASKED_FILE, Shipped
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import ROOT
from tests.support.raw import of_all_texts
from tools import ship_results
from tools.recorded import PageFailed, at_a_button, visit, visit_all

STALE = "what comes with the project is stale: run 'make shipped' and commit what it writes"
VIEW = "smollm2-135m-instruct-q4"
MODELS = (*curated.BUNDLED_MODELS, VIEW)
WITH_STATISTICS = ("demo-attn-2l", "demo-gpt2")
REAL = ROOT / "build" / "real-model"
MORE = "more"
"""What is shipped beyond what pages open on: circuits, and more of a model without its weights."""
ENTRY = (
    {"analysis": "a", "layers": [1]},
    {
        "values/x": np.linspace(-3, 3, 12).reshape(3, 4),
        "labels": np.arange(5, dtype=np.int8),
        "none": np.zeros((0, 2), np.float32),
        "one": np.array(2.5),
        "many": np.linspace(-1e-9, 9e9, 3000, dtype=np.float32).reshape(30, 100),
    },
)
LARGE = {
    "wide": np.geomspace(1e-3, 7e4, 2000).reshape(2, 1000),
    "tiny": np.append(
        np.geomspace(3e-12, 1e-9, 2000, dtype=np.float32),
        np.float32([np.nan, np.inf, -np.inf, 0, -0.0]),
    ),
    "counts": np.arange(2000),
}


@pytest.fixture(params=["a folder", "a zip file"])
def place(request, tmp_path):
    """Two entries: in a folder, as they ship, or in a file, as they are exported to be shown."""
    folder = tmp_path / "shipped" / "m"
    folder.mkdir(parents=True)
    for key in ("one", "two"):
        (folder / f"{key}{SUFFIX}").write_bytes(compressed(encode(key, *ENTRY)))
    (folder / ASKED_FILE).write_bytes(b"{}")
    if request.param == "a folder":
        return folder
    file = folder.with_suffix(".zip")
    with zipfile.ZipFile(file, "w") as zipped:
        for each in folder.iterdir():
            zipped.write(each, each.name)
    shutil.rmtree(folder)
    return file


def same(a, b):
    return a[0] == b[0] and all(
        a[1][name].dtype == array.dtype and np.array_equal(a[1][name], array, equal_nan=True)
        for name, array in b[1].items()
        if array.dtype.kind == "f" or (a[1][name] == array).all()
    )


@pytest.mark.parametrize("bits", [8, 10, 14, 22, 23])
def test_rounded(bits):
    """Large arrays of floats lose bits, not their type; the size of numbers plays no part."""
    arrays = ship_results.coarser(LARGE, dict.fromkeys(LARGE, bits))

    assert set(LARGE) == set(arrays)
    for name, array in LARGE.items():
        assert array.dtype == arrays[name].dtype
        assert array.shape == arrays[name].shape
        np.testing.assert_allclose(arrays[name], array, rtol=2.0 ** -(bits + 1) + 2.0**-24)
    assert (LARGE["wide"] != arrays["wide"]).any()
    assert (LARGE["counts"] == arrays["counts"]).all()


def test_beneath_the_store(place, tmp_path, monkeypatch):
    """Its entries are there, hide nothing newer, and can be switched off."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setattr("poskernel_core.models.stored.RESULTS", place.parent)
    beneath = Store(tmp_path / "cache")
    assert beneath.has("one")
    assert same(beneath.get("one"), ENTRY)
    assert not beneath.has("three")
    assert beneath.get("three") is None
    assert [] == list(beneath.keys())
    assert [("one", ENTRY[0]), ("two", ENTRY[0])] == list(beneath.headers())

    beneath.put("one", {"newer": True}, {})
    assert {"newer": True} == beneath.get("one")[0]
    beneath.drop("one")
    assert same(beneath.get("one"), ENTRY)
    monkeypatch.setenv("POSKERNEL_SHIPPED", "0")
    bare = Store(tmp_path / "cache")
    assert not bare.has("one")
    assert bare.get("one") is None


def test_damaged(place, tmp_path):
    """One entry is as good as missing, the other is there; no archive, or none of ours, is none."""
    whole = place / f"one{SUFFIX}" if place.is_dir() else place
    data = bytearray(whole.read_bytes())
    data[300] ^= 255
    whole.write_bytes(bytes(data))
    found = Shipped([place])
    assert found.has("one")
    assert found.get("one") is None
    assert not found.has("one")
    assert same(found.get("two"), ENTRY)

    (tmp_path / "m.zip").write_bytes(b"nonsense")
    assert not Shipped([]).has("one")
    assert not Shipped([tmp_path / "none.zip", tmp_path / "m.zip"]).has("one")


def asked(model):
    pages = json.loads((RESULTS / model / ASKED_FILE).read_text())
    return {
        page: [Request.model_validate(each) for each in requests]
        for page, requests in pages.items()
    }


def today(request):
    corpus = request.run.corpus.model_copy(update={"fingerprint": "", "revision": None})
    model = catalog.locate(request.run.model.name, request.run.model.revision).spec
    run = request.run.model_copy(update={"model": model, "corpus": corpora.resolve(corpus)})
    return make_plan(request.model_copy(update={"run": run}))


@pytest.mark.parametrize("model", MODELS)
def test_not_stale(model, monkeypatch):
    """Layout, weights, texts and parameters are those that the archive was made with."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    found = Shipped([*RESULTS.iterdir()])
    pages = asked(model)

    assert {"etc_heatmap", "explore"} <= set(pages), STALE
    for requests in pages.values():
        for request in requests:
            assert found.has(today(request).key), f"{request.analysis} of {model}: {STALE}"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_page_of_today(model, shipped_engine):
    def answer(asked):
        fragments.refuse(model, catalog.locate(model).config, asked.question.uses)
        found = shipped_engine.cached(asked)
        assert found is not None, f"{asked.question.name} of {model}: {STALE}"
        return found

    pages = dict(visit_all(model, answer))  # one about other models asks for nothing
    assert {page: set(each) for page, each in pages.items() if each} == {
        page: {request.key for request in each}
        for page, each in asked(model).items()
        if each and page != MORE
    }, STALE
    assert shipped_engine.worker_pid is None


@pytest.mark.parametrize("model", WITH_STATISTICS)
def test_statistics_agree_with_results(model, shipped_engine):
    run = describe_run(model)
    question, query = analyses.find("kernel"), min(400, run.context - 1)
    request = Request(analysis="kernel", run=run, params={"query": query})
    exact = of_all_texts(shipped_engine.cached(request))
    view = StoredStatistics.open(shipped_engine.store, run)
    ours = question.compute({"main": view}, question.params(query=query), lambda done, total: None)

    np.testing.assert_allclose(ours.values["kernel"], exact.values["kernel"], rtol=5e-4, atol=1e-4)
    for name in ("etc", "attention_distance", "kernel"):
        error, value = exact.errors[name], exact.values[name]
        there = np.isfinite(error) & (error > 0)
        apart = np.abs(ours.values[name] - value)[there]
        assert np.median(apart / error[there]) < 0.01, name
        scale = np.maximum(np.abs(value[there]), 0.5)
        assert (apart <= np.maximum(error[there] / 10, 2e-4 * scale)).mean() > 0.99, name
    kinds = [
        classify(each.values["local_mass"], each.values["etc"], each.values["visible_keys"])
        for each in (ours, exact)
    ]
    assert (kinds[0] == kinds[1]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("near_worker")
@pytest.mark.parametrize("model", MODELS)
def test_a_sample_is_computed_anew(model, fresh_engine, tmp_path, monkeypatch):
    """One head on one text: shipped scores and patterns are those that the weights give."""
    request = next(r for each in asked(model).values() for r in each if r.analysis == "stages")
    shipped = from_entry(Shipped([*RESULTS.iterdir()]).get(request.key))
    if model == VIEW:
        if not REAL.is_dir():
            pytest.skip("the real GGUF file is not here: `make real-model` brings it")
        monkeypatch.syspath_prepend(str(REAL))
        monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
        assert not catalog.locate(VIEW).away
    ours = fresh_engine.result(request)
    for name in ("score", "pattern"):
        found = shipped.values[name]
        np.testing.assert_allclose(ours.values[name], found, atol=2e-3 * np.nanmax(np.abs(found)))


def test_size():
    sizes = {
        folder.name: [file.stat().st_size for file in folder.iterdir()]
        for folder in RESULTS.iterdir()
    }
    assert sum(sizes[VIEW]) < 11.5e6
    assert sum(map(sum, sizes.values())) < 26e6
    assert sum(map(len, sizes.values())) < 400


class Toy(type(analyses.find("entropy"))):
    """A new measure, as a newcomer begins it: not precomputed."""

    name = title = "toy"
    precomputed = "never"
    figure = ""


def test_a_new_measure_makes_nothing_stale(shipped_engine, monkeypatch):
    """The verdict leaves it out of what ships, until it is precomputed."""
    monkeypatch.setitem(analyses.ANALYSES, "toy", Toy())
    monkeypatch.setattr(results, "_PLANS", plans := {})  # those with it are of no other test
    model, engine = "demo-attn-2l", shipped_engine
    assert ["toy"] == engine.missing(Request(analysis="verdicts", run=describe_run(model)))

    def answer(plan):
        found = engine.cached(plan)
        assert found is not None, STALE
        return found

    assert set(visit(model, "head", answer)) == {each.key for each in asked(model)["head"]}
    assert engine.worker_pid is None
    monkeypatch.setattr(Toy, "precomputed", "always")
    plans.clear()
    with pytest.raises(PageFailed):
        visit(model, "head", answer)


def test_what_is_there_is_not_written_again(tmp_path, monkeypatch):
    """What is missing is written, what nobody asks for goes, and not a byte of the rest changes."""
    model = "demo-attn-2l"
    folder = shutil.copytree(RESULTS / model, tmp_path / "results" / model)
    monkeypatch.setattr(ship_results, "RESULTS", folder.parent)
    store = Store(tmp_path / "store")
    ship_results.take(store)
    pages = {name: {each.key: each for each in many} for name, many in asked(model).items()}
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert (0, 0) == ship_results.write(store, model, pages)

    lost = next(folder.glob(f"{model_prefix(catalog.locate(model).spec.fingerprint)}*"))
    whole = Shipped([folder]).get(lost.stem)
    for damage, gone in ((Path.unlink, 1), (lambda file: file.write_bytes(b"damage"), 2)):
        damage(lost)
        (folder / f"{'0' * 64}{SUFFIX}").write_bytes(b"of another layout")
        times = {file: file.stat().st_mtime_ns for file in folder.glob(f"*{SUFFIX}")}
        assert (1, gone) == ship_results.write(store, model, pages)
        after = {file.name: file.read_bytes() for file in folder.iterdir()}
        assert {lost.name} >= {name for name, data in before.items() if after.pop(name) != data}
        assert not after
        assert all(file == lost or file.stat().st_mtime_ns == times[file]
                   for file in folder.glob(f"*{SUFFIX}"))  # fmt: skip
        assert same(Shipped([folder]).get(lost.stem), whole)
    store.close()


def test_a_clone_without_the_weights(tmp_path, monkeypatch):
    """What is missing of a model whose weights are not here is said, and nothing is computed."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    store = Store(tmp_path)
    told = ship_results.left(store, VIEW)
    assert told.startswith("left as it is")
    assert "etc" not in told
    lost = asked(VIEW)["explore"][0].key
    monkeypatch.setattr(store, "has", lambda key: key != lost)
    assert ship_results.left(store, VIEW).startswith(f"{told}. Until then it lacks etc: ")


def test_what_a_button_computes():
    """A card of a new question behind a button makes nothing stale."""
    for name, heads, expected in (
        ("copying", 270, True), ("kernel-only-head", 270, True),
        ("head-position-sources", 100, True), ("head-position-sources", 101, False),
        ("head-examples", 16, False), ("headvis", 16, False),
    ):  # fmt: skip
        params = {"head": "L0H0"} if "head" in find(name).params.model_fields else {}
        plan = make_plan(Request(analysis=name, run=describe_run("demo-attn-2l"), params=params))
        assert at_a_button(plan, heads) == expected, name


def test_a_real_model_without_its_weights(shipped_engine):
    """Every head's kernel at eight positions and two skips, every measure, errors by documents."""
    located = catalog.locate(VIEW)
    assert located.away
    assert "4-bit" in catalog.note_of(VIEW)
    shown = located.shown
    assert (8, 2) == (len(shown.queries), len(shown.skips))
    for skip in shown.skips:
        for query in shown.queries:
            params = {"query": query, "skip": skip}
            kernel = shipped_engine.cached(
                Request(analysis="kernel", run=describe_run(VIEW), params=params)
            )
            assert (30, 9) == kernel.values["etc"].shape
            assert ("documents", 10) == tuple(kernel.provenance[n] for n in ("errors", "groups"))
            assert "Q4_1" == kernel.provenance["quantisation"]
    verdicts = Request(analysis="verdicts", run=describe_run(VIEW))
    assert all(find(name).on_request for name in shipped_engine.missing(verdicts))  # new ones
    assert shipped_engine.cached(verdicts) is not None
