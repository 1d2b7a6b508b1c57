"""The page of heads over training as a script: what is computed, what is not yet, what is shown."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.plan import Asked, make_plan
from poskernel_core.storage.store import Store
from tests.analyses.training.test_over_training import checkpoint
from tests.support.bound import opened_as_linked
from tools.recorded import figures_on

PATIENCE = 240.0
CHARTS = 5
"""Curves, the grids of all checkpoints, kinds, the kernel, induction and sink."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run of three checkpoints; the first two have the same weights."""
    root = tmp_path_factory.mktemp("run")
    for step, gain in ((0, 0.0), (8, 0.0), (64, 1.0)):
        checkpoint(root, step, previous=gain)
    return root


@pytest.fixture
def opened(made, engine, monkeypatch):
    monkeypatch.setattr(results, "engine", lambda: engine)
    monkeypatch.setattr(results, "PATIENCE", PATIENCE)
    monkeypatch.setenv("POSKERNEL_MODELS", str(made))

    def go(**link: str) -> AppTest:
        app = opened_as_linked("over_training", model=str(made), windows="50", **link)
        assert [] == [each.value for each in (*app.exception, *app.error)]
        return app

    return go


def charts(app: AppTest) -> int:
    return len(figures_on(app))


def said(app: AppTest) -> list[str]:
    return [each.value.replace("\\", "") for each in (*app.info, *app.warning)]


def button(app: AppTest, label: str) -> Any:
    (found,) = [each for each in app.button if each.label == label]
    return found


@pytest.mark.slow
def test_from_nothing_to_everything(opened, engine, monkeypatch):
    """One button computes all; what is shown then comes from the store, and no worker is asked."""
    app = opened()
    assert ["3 of 3 checkpoints are not computed yet: step-0, step-8, step-64."] == said(app)
    assert 0 == charts(app)
    app = button(app, "Compute them").click().run()
    end = time.monotonic() + PATIENCE
    while charts(app) < CHARTS and time.monotonic() < end:
        app = app.run()
    assert [] == [each.value for each in (*app.exception, *app.error)]
    assert ["Equal checkpoints: step 8 has the weights of step 0."] == said(app)
    assert CHARTS == charts(app)

    monkeypatch.setattr(engine, "submit", None)
    again = opened(follow="distance to observed attention", head="L0H0", step="8")
    assert "Distance to observed attention over training" in {
        each.value for each in again.subheader
    }
    assert 8 == again.select_slider(key="step").value
    kinds = opened(follow="kind of kernel")
    assert CHARTS - 1 == charts(kinds)


class Partly:
    """An engine that has the answers about some checkpoints; none is computed."""

    def __init__(self, store: Store, gone: str) -> None:
        self._engine, self._gone, self.submitted = Engine(store), gone, []
        self.store = store

    def cached(self, request: Asked) -> Any:
        """An answer that stands on nothing that is gone: made up, as large as it should be."""
        asked = make_plan(request)
        if asked.composition is None or self._gone in asked.parts:
            return None
        layers, heads, steps = 2, 3, len(asked.parts)
        rng = np.random.default_rng(1)
        found = {name: made_result(part, rng, layers, heads) for name, part in asked.parts.items()}
        assert steps == len(found)
        return asked.composition.compose(found, asked.run, asked.params)

    def missing(self, request: Asked) -> list[str]:
        return [name for name in make_plan(request).parts if name == self._gone]

    def running(self, request: Asked) -> None:
        """Nothing is."""

    def submit(self, request: Asked, visitor: str = "") -> Any:
        raise AssertionError(f"nothing is to be computed: {make_plan(request).question.name}")


def made_result(part: Any, rng: np.random.Generator, layers: int, heads: int) -> Any:
    """An answer to one part with random numbers, in the axes that its question declares."""
    run = part.run
    sizes = {
        "layer": layers, "head": heads, "key": run.context, "query": len(run.positions), "copy": 2,
    }  # fmt: skip
    declared = [v for v in part.question.values if set(v.axes) <= set(sizes)]
    values = {v.name: rng.uniform(0.1, 1, [sizes[a] for a in v.axes]) for v in declared}
    labels = {}
    if "kind" in values:
        values["kind"] = (3 * values["kind"]).astype(int) % 3
        labels["kind"] = ("local", "slow decay", "uniform")
    made = part.question.result(
        part.params,
        values,
        {v.name: values[v.name] / 10 for v in declared if v.has_error},
        labels=labels,
        coordinates={"query": np.array(run.positions)},
        provenance={
            "model": run.model.name, "revision": run.model.revision, "model_fingerprint": "abc",
            "corpus": "sample", "windows": 50, "context": run.context, "start_token": True,
            "seed": 0, "dtype": "float32", "dtype_error": 0.0, "device": "cpu", "date": "today",
        },
    )  # fmt: skip
    return replace(made)


def test_what_is_there_is_shown_meanwhile(opened, made, tmp_path, monkeypatch):
    """One of three checkpoints is missing: it is named, the others drawn, nothing computed."""
    monkeypatch.setattr(results, "engine", lambda: Partly(Store(tmp_path), "step-8"))

    app = opened(head="L1H2", step="64", tracked="L0H1")
    assert "1 of 3 checkpoints are not computed yet: step-8." in said(app)[0]
    assert button(app, "Compute them")
    assert CHARTS == charts(app)
    assert [0, 64] == [
        int(re.sub(r"\D", "", each)) for each in app.select_slider(key="step").options
    ]
    assert ["L0H1"] == app.multiselect(key="tracked").value
    titles = " ".join(each.value.replace("\\", "") for each in app.subheader)
    assert "Kernel of L1H2 over training" in titles
    assert "Induction and attention to the first token, L1H2" in titles
    assert "Induction score at step 64" in titles


def test_every_checkpoint_there(opened, tmp_path, monkeypatch):
    """Nothing is said but which are equal; the sidebar's checkpoint plays no part here."""
    monkeypatch.setattr(results, "engine", lambda: Partly(Store(tmp_path), ""))

    app = opened(checkpoint="step-8")
    assert ["Equal checkpoints: step 8 has the weights of step 0."] == said(app)
    assert "step-8" == app.selectbox(key="checkpoint").value
    assert CHARTS == charts(app)
