"""Questions about sets of pairs whose worker is killed: they go on, and no bit is different."""

import contextlib

import numpy as np
import pytest

from poskernel_core import Engine, Execution, Store
from poskernel_core.common.errors import Cancelled, ComputeFailed
from poskernel_core.common.specs import Request
from poskernel_core.engine import process
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import software
from poskernel_core.models.catalog import locate
from tests.support.far_worker import DIES, worker_runs
from tests.support.near_worker import NearWorker

pytestmark = pytest.mark.usefixtures("unchecked")

PAIRS = {"maker": "copying", "count": 11}
QUESTIONS = {
    "edges": {"head": "L1H0"},
    "faithfulness": {"outside": "mean"},
    "patch-heads": {"exact": "all"},
    "patch-positions": {"head": "L1H0"},
}
CPU = Execution(device="cpu", batch=8)


def plan_of(name):
    run = describe_run("demo-attn-2l", context=64)
    return make_plan(Request(analysis=name, run=run, params=PAIRS | QUESTIONS[name]))


def goes_on(engine, plan, folder):
    """It takes over what was read, which is gone once there is the answer, that of a whole run."""
    begun, store = plan.of_stage(0, 0).key, engine.store
    read = store.get(begun)[1]["read"]
    assert 0 < read.sum() < len(read)
    resumed = engine.result(plan)
    assert not store.has(begun)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", NearWorker.module())
        with contextlib.closing(Engine(Store(folder / "another"), CPU)) as another:
            whole = another.result(plan)
    assert np.isfinite(whole.values["difference"])
    for part in ("values", "errors", "biases"):
        for each, array in getattr(whole, part).items():
            np.testing.assert_array_equal(array, getattr(resumed, part)[each], each)


KILLED = f"""
from poskernel_core.storage.store import Store
{DIES}
usual = Store.put

def put(store, key, *parts):
    usual(store, key, *parts)
    if key == %r:
        die()

Store.put = put
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_at_its_first_save(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as here, or sums differ in their last bits
    plan = plan_of("patch-heads")
    with contextlib.closing(Engine(Store(tmp_path), CPU)) as engine:
        with monkeypatch.context() as patch:
            worker_runs(patch, KILLED % plan.of_stage(0, 0).key)
            with pytest.raises(ComputeFailed, match="goes on where it stopped"):
                engine.result(plan)
        goes_on(engine, plan, tmp_path)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_task_that_ends_at_its_first_save(near_worker, tmp_path, monkeypatch, name):
    plan, put = plan_of(name), Store.put

    def ends(store, key, *parts):
        put(store, key, *parts)
        if key == plan.of_stage(0, 0).key:
            raise Cancelled("Cancelled.")

    with contextlib.closing(Engine(Store(tmp_path), CPU)) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "put", ends)
            with pytest.raises(Cancelled):
                engine.result(plan)
        goes_on(engine, plan, tmp_path)


@pytest.mark.parametrize(("batch", "taken"), [(8, True), (5, False)])
def test_what_is_taken_over(near_worker, tmp_path, batch, taken):
    """Only what the same software has saved, on the same device, in the same batches."""
    run = describe_run("demo-attn-2l", context=64)
    plan = make_plan(
        Request(analysis="patch-heads", run=run, params=PAIRS | QUESTIONS["patch-heads"])
    )
    geometry = locate("demo-attn-2l").geometry
    effects = np.arange(10.0, 10.0 + geometry.n_layers * geometry.n_heads)
    saved = {
        "metrics": np.repeat([[1.0], [0.0]], 11, axis=1),
        "read": np.ones(11, dtype=bool),
        "exact": np.tile(effects.reshape(1, geometry.n_layers, -1), (11, 1, 1)),
    }
    with contextlib.closing(Engine(Store(tmp_path), Execution(device="cpu", batch=8))) as engine:
        made = {"made": software() | {"device": "cpu", "batch": batch}}
        engine.store.put(plan.of_stage(0, 0).key, made, saved)
        assert taken == np.allclose(engine.result(plan).values["effect"].ravel(), effects)
