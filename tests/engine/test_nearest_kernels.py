"""The nearest heads among everything that is stored: found by what the store's entries say."""

from types import SimpleNamespace

import numpy as np
import pytest
from cachetools import FIFOCache

import poskernel_core as pk
from poskernel_core.analyses.comparison import formulas
from poskernel_core.analyses.comparison.pins import Pin, pinned_run
from poskernel_core.engine import nearest_kernels
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.nearest_kernels import heads_like
from poskernel_core.models import catalog
from poskernel_core.storage.store import Store

pytestmark = pytest.mark.usefixtures("near_workers", "ample_time")

CONTEXT, WINDOWS, QUERY, SKIP = 32, 3, 31, 4
MODELS = ("demo-attn-2l", "demo-gpt2")
OWN = Pin("L0H1", "demo-attn-2l", context=CONTEXT, windows=WINDOWS)


@pytest.fixture
def ample_time(monkeypatch):
    """However slow the machine is, the search ends by itself."""
    monkeypatch.setattr(nearest_kernels, "MAX_SECONDS", float("inf"))


@pytest.fixture(scope="module")
def kernels(engine):
    """A store with kernels of two models, at two positions, and with another skip."""
    found = {}
    for model in MODELS:
        for query, skip in ((QUERY, SKIP), (21, SKIP), (QUERY, 0)):
            found[model, query, skip] = pk.show(
                "kernel", model, engine=engine, context=CONTEXT, windows=WINDOWS,
                params={"query": query, "skip": skip},
            )  # fmt: skip
    return engine.store, found


def entry(store, found, model):
    """Key, header and arrays of a model's kernels; those of other positions are of the same run."""
    told = {**found[model, QUERY, SKIP].provenance}
    told.pop("model_title")
    params = found[model, QUERY, SKIP].params
    (key,) = (
        key
        for key, header in store.headers()
        if header.get("provenance") == told and header["params"] == params
    )
    return key, *store.get(key)


def by_offset(found, layer, head, query=QUERY):
    """A head's kernel and its errors from its own position backwards."""
    return tuple(
        np.append(part["kernel"][layer, head, SKIP : query + 1][::-1], np.full(SKIP, np.nan))
        for part in (found.values, found.errors)
    )


def search(store, found, offered=lambda model: True, query=QUERY, located=catalog.locate):
    """The heads like the first model's L0H1."""
    kernel, error = by_offset(found[MODELS[0], QUERY, SKIP], 0, 1)
    return heads_like(
        store, OWN, kernel, error, query=query, skip=SKIP, offered=offered,
        located=located, most=1000,
    )  # fmt: skip


def test_every_head_in_order(kernels):
    """All heads of both runs but the head itself, nearest first, at the distance of the loops."""
    store, found = kernels
    answer = search(store, found)
    assert (2, 48, True) == (answer.runs, answer.compared, answer.whole)
    assert 47 == len(answer.heads) == len({each.pin for each in answer.heads})
    gaps = [each.distance for each in answer.heads]
    assert sorted(gaps) == gaps
    ours = by_offset(found[MODELS[0], QUERY, SKIP], 0, 1)
    for each in answer.heads:
        layer, head = int(each.pin.cell[1]), int(each.pin.cell[3:])
        theirs = by_offset(found[each.pin.model, QUERY, SKIP], layer, head)
        gap = 0.5 * np.nansum(np.abs(ours[0] - theirs[0]))
        assert gap == pytest.approx(each.distance, abs=1e-5)
        bound = 0.5 * np.nansum(np.hypot(ours[1], theirs[1]))
        assert bound == pytest.approx(each.largest_error, abs=1e-5)
        assert describe_run(each.pin.model, context=CONTEXT, windows=WINDOWS) == pinned_run(
            each.pin
        )


def test_the_nearest_position_is_taken(kernels):
    """Kernels of the position next to the one asked for, aligned on the offsets of both."""
    store, found = kernels
    answer = search(store, found, query=20)
    assert {21} == {each.query for each in answer.heads}
    first = answer.heads[0]
    layer, head = int(first.pin.cell[1]), int(first.pin.cell[3:])
    theirs = by_offset(found[first.pin.model, 21, SKIP], layer, head, 21)[0]
    ours = by_offset(found[MODELS[0], QUERY, SKIP], 0, 1)[0]
    assert float(formulas.distance(ours, theirs)) == pytest.approx(first.distance, abs=1e-5)


def test_what_is_passed_over(kernels):
    """Entries of other kinds, with odd headers, of weights that are gone, are no neighbours.

    What the host computed for itself, of a model that is not offered, stays with the host.
    """
    store, found = kernels
    only = search(store, found, offered=lambda model: model == MODELS[0])
    assert ({MODELS[0]}, 1) == ({each.pin.model for each in only.heads}, only.runs)
    for number, header in enumerate(
        ({}, {"analysis": "kernel"}, {"analysis": "kernel", "params": {"source": "mean"},
         "provenance": {"model": 3}}, {"analysis": "kernel", "params": [], "provenance": {}})
    ):  # fmt: skip
        store.put(f"odd-{number}", header, {"x": np.zeros(2)})
    assert 47 == len(search(store, found).heads)
    kernel, error = by_offset(found[MODELS[0], QUERY, SKIP], 0, 1)
    gone = heads_like(
        store, OWN, kernel, error, query=QUERY, skip=SKIP, offered=lambda model: True,
        located=lambda model, revision: None,
    )  # fmt: skip
    assert ([], 0) == (gone.heads, gone.runs)


@pytest.mark.parametrize("lost", MODELS)
def test_what_is_lost_meanwhile_hides_no_other(kernels, monkeypatch, lost):
    """A model, or an entry that was removed after the headers were read."""
    store, found = kernels
    kept = {model for model in MODELS if model != lost}
    answer = search(
        store, found, located=lambda *told: None if told[0] == lost else catalog.locate(*told)
    )
    assert (kept, 1) == ({each.pin.model for each in answer.heads}, answer.runs)
    removed, _, _ = entry(store, found, lost)
    read = nearest_kernels._rows
    monkeypatch.setattr(
        nearest_kernels, "_rows", lambda *of: None if of[1] == removed else read(*of)
    )
    answer = search(store, found)
    assert (kept, 1) == ({each.pin.model for each in answer.heads}, answer.runs)


def test_another_layout_is_passed_over(kernels, tmp_path):
    """What an earlier version wrote is found by its header, and not read."""
    store, found = kernels
    key, header, arrays = entry(store, found, MODELS[0])
    header["provenance"]["seed"] = 9
    for prefix, runs in (("0" * 16, 2), (key[:16], 3)):
        other = Store(tmp_path / prefix)
        for each, _ in store.headers():
            other.put_bytes(each, store.get_bytes(each))
        other.put(f"{prefix}-{'0' * 64}", header, arrays)
        assert runs == search(other, found).runs
        other.close()


def test_a_head_of_several_runs_is_there_once(kernels, tmp_path):
    """At the nearest: here the other run of a model, in which one head has our own kernel."""
    store, found = kernels
    ours = found[MODELS[0], QUERY, SKIP].values["kernel"][0, 1]
    key, header, arrays = entry(store, found, MODELS[1])
    both = Store(tmp_path)
    for each, _ in store.headers():
        both.put_bytes(each, store.get_bytes(each))
    header["provenance"]["windows_asked"] = 8
    arrays["values/kernel"][2, 3] = ours
    both.put(f"{key.partition('-')[0]}-{'0' * 64}", header, arrays)
    answer = search(both, found)
    both.close()
    assert (3, 80) == (answer.runs, answer.compared)
    assert 47 == len({(each.pin.model, each.pin.cell) for each in answer.heads})
    assert 47 == len(answer.heads)
    first = answer.heads[0]
    assert ("L2H3", MODELS[1], 8) == (first.pin.cell, first.pin.model, first.pin.windows)
    assert 0 == pytest.approx(first.distance, abs=1e-6)


def test_what_it_may_cost(kernels, monkeypatch):
    """Headers that no longer fit into memory are read again: the answer is the same.

    Where the store is too large for the time there is, that is said.
    """
    store, found = kernels
    remembered = FIFOCache(2)
    monkeypatch.setattr(nearest_kernels, "_HEADERS", remembered)
    answers = [search(store, found) for _ in range(2)]
    assert 2 == len(remembered)
    assert answers[0] == answers[1]
    assert 47 == len(answers[0].heads)
    monkeypatch.setattr(nearest_kernels, "MAX_SECONDS", -1.0)
    answer = search(store, found)
    assert (False, 0) == (answer.whole, answer.runs)
    monkeypatch.setattr(nearest_kernels, "MAX_SECONDS", 1.0)
    now = [0.0]
    monkeypatch.setattr(nearest_kernels, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def late(*model):
        now[0] = 2.0
        return catalog.locate(*model)

    answer = search(store, found, located=late)  # the time is over after the first run
    assert (False, 1) == (answer.whole, answer.runs)


def test_shipped_headers(tmp_path, monkeypatch):
    """What comes with the project is searched as well."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    store = Store(tmp_path)
    kinds = {header.get("analysis") for _, header in store.headers()}
    assert {"etc", "kernel"} <= kinds
    known = {key for key, _ in store.headers()}
    assert [] == list(store.headers(known))
