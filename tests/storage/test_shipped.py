"""What comes with the project: read beneath the store, whole, not stale, and right."""

import json
import zipfile

import numpy as np
import pytest

from poskernel_core import analyses
from poskernel_core.analyses.kernels.formulas import classify
from poskernel_core.common.specs import Request
from poskernel_core.data import corpora
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import from_entry
from poskernel_core.models import catalog, curated, fragments
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.encoding import encode
from poskernel_core.storage.shipped import ASKED_FILE, Shipped, pack, unpack
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import ROOT
from tools.recorded import visit_all

STALE = "what comes with the project is stale: run 'make shipped' and commit what it writes"
VIEW = "smollm2-135m"
MODELS = (*curated.BUNDLED_MODELS, VIEW)
WITH_STATISTICS = ("demo-attn-2l", "demo-gpt2")
REAL = ROOT / "build" / "real-model"
MORE = "more"
"""What is shipped of a model whose weights are not, beyond what its pages open on."""
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


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "shipped"
    folder.mkdir()
    with zipfile.ZipFile(folder / "m.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(ASKED_FILE, "{}")
        for key in ("one", "two"):
            file.writestr(key, encode(key, *pack(ENTRY, {})))
    return folder / "m.zip"


@pytest.fixture
def beneath(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setattr("poskernel_core.models.stored.RESULTS", archive.parent)
    return Store(tmp_path / "cache")


def same(a, b):
    return a[0] == b[0] and all(
        a[1][name].dtype == array.dtype and np.array_equal(a[1][name], array, equal_nan=True)
        for name, array in b[1].items()
        if array.dtype.kind == "f" or (a[1][name] == array).all()
    )


def test_packed_whole():
    assert same(unpack(pack(ENTRY, {})), ENTRY)


@pytest.mark.parametrize("bits", [8, 10, 14, 22, 23])
def test_rounded(bits):
    """Large arrays of floats lose bits, not their type; the size of numbers plays no part."""
    _, arrays = unpack(pack(({}, LARGE), dict.fromkeys(LARGE, bits)))

    assert set(LARGE) == set(arrays)
    for name, array in LARGE.items():
        assert array.dtype == arrays[name].dtype
        assert array.shape == arrays[name].shape
        np.testing.assert_allclose(arrays[name], array, rtol=2.0 ** -(bits + 1) + 2.0**-24)
    assert (LARGE["wide"] != arrays["wide"]).any()
    assert (LARGE["counts"] == arrays["counts"]).all()


def test_beneath_the_store(beneath, tmp_path):
    assert beneath.has("one")
    assert same(beneath.get("one"), ENTRY)
    assert not beneath.has("three")
    assert beneath.get("three") is None
    assert [] == list(beneath.keys())

    beneath.put("one", {"newer": True}, {})
    assert {"newer": True} == beneath.get("one")[0]
    beneath.drop("one")
    assert same(beneath.get("one"), ENTRY)


def test_switched_off(beneath, tmp_path, monkeypatch):
    monkeypatch.setenv("POSKERNEL_SHIPPED", "0")
    bare = Store(tmp_path / "cache")

    assert not bare.has("one")
    assert bare.get("one") is None


def test_damaged(archive):
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as file:
        place = file.getinfo("one").header_offset
    data[place + 200] ^= 255
    archive.write_bytes(bytes(data))
    found = Shipped([archive])

    assert found.has("one")
    assert found.get("one") is None
    assert not found.has("one")
    assert same(found.get("two"), ENTRY)


def test_no_archive(tmp_path):
    (tmp_path / "m.zip").write_bytes(b"nonsense")

    assert not Shipped([]).has("one")
    assert not Shipped([tmp_path / "none.zip"]).has("one")


def asked(model):
    with zipfile.ZipFile(RESULTS / f"{model}.zip") as file:
        pages = json.loads(file.read(ASKED_FILE))
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
    found = Shipped([*RESULTS.glob("*.zip")])
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
    exact = shipped_engine.cached(Request(analysis="kernel", run=run, params={"query": query}))
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
def test_a_sample_is_computed_anew(model, tmp_path, monkeypatch):
    """One head on one text: shipped scores and patterns are those that the weights give."""
    request = next(r for each in asked(model).values() for r in each if r.analysis == "stages")
    shipped = from_entry(Shipped([*RESULTS.glob("*.zip")]).get(request.key))
    if model == VIEW:
        if not REAL.is_dir():
            pytest.skip("the real GGUF file is not here: `make real-model` brings it")
        monkeypatch.syspath_prepend(str(REAL))
        monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
        assert not catalog.locate(VIEW).away
    engine = Engine(Store(tmp_path))
    try:
        ours = engine.result(request)
    finally:
        engine.close()

    for name in ("score", "pattern"):
        found = shipped.values[name]
        np.testing.assert_allclose(ours.values[name], found, atol=2e-3 * np.nanmax(np.abs(found)))


def test_size():
    sizes = {file.stem: file.stat().st_size for file in RESULTS.glob("*.zip")}
    assert sizes[VIEW] < 10e6
    assert sum(sizes.values()) < 24e6


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
    assert shipped_engine.missing(Request(analysis="verdicts", run=describe_run(VIEW))) == []
