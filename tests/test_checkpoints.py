"""A pass that is broken off goes on from its checkpoint; sums that are no numbers are refused."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common.errors import Cancelled, ComputeFailed
from poskernel_core.common.specs import ALL_GATHERED, CorpusSpec, ModelSpec, RunSpec
from poskernel_core.passes import runner
from poskernel_core.passes.plan import plan_for
from poskernel_core.passes.streaming import Pass
from poskernel_core.storage.statistics import (
    StoredStatistics,
    missing_statistics,
    part_key,
    write_statistics,
)
from poskernel_core.storage.store import Store
from tests import builders

WINDOWS, CONTEXT, BATCH = 11, 17, 2
IDS = builders.random_ids(WINDOWS, CONTEXT, seed=5).numpy()
POSITIONS = (3, 16)
RUN = RunSpec(
    model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(name="windows"),
    context=CONTEXT, windows=WINDOWS, positions=POSITIONS, queries_per_position=7,
)  # fmt: skip


@pytest.fixture(scope="module")
def model(model_dirs):
    """The tiny GPT-2."""
    return pk.load(str(model_dirs["gpt2"]), device="cpu")


@pytest.fixture
def plan(model):
    """What is gathered of the windows."""
    return plan_for(model.geometry, IDS, POSITIONS, 7, True)


@pytest.fixture
def gather(model, plan):
    """A pass over the windows, and how often it reports before it is broken off."""

    def go(store, reports=999, batch=BATCH):
        left = iter(range(reports))

        def report(done, total, note):
            if next(left, None) is None:
                raise Cancelled("Enough.")

        return runner.gather(model, IDS, plan, RUN, report, store=store, batch=batch)

    return go


def test_a_pass_goes_on(tmp_path, monkeypatch, gather):
    """Broken off twice, it reads every window once: sums and errors are those of a whole pass."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    store, whole = Store(tmp_path / "broken"), gather(Store(tmp_path / "whole"))
    for reports in (2, 3):
        with pytest.raises(Cancelled):
            gather(store, reports)

    resumed = gather(store, batch=4)  # the checkpoint lies within a batch

    assert (0, 10) == tuple(each.header.resumed_at_window for each in (whole, resumed))
    assert set(whole.arrays) == set(resumed.arrays)
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(array, resumed.arrays[name], err_msg=name)


def test_statistics_that_lack_a_layer(tmp_path, model, gather):
    """They are not there, whichever layer it is."""
    store, found = Store(tmp_path), gather(None)
    for layer in range(model.geometry.n_layers):
        write_statistics(store, RUN, found)
        assert StoredStatistics.open(store, RUN) is not None
        store.drop(part_key(RUN, "scores", str(layer)))
        assert StoredStatistics.open(store, RUN) is None
        assert ("scores",) == missing_statistics(store, RUN)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sums_that_are_no_numbers(model, plan, bad):
    """The layer and the sum are named."""
    work = Pass(model, plan, ALL_GATHERED)
    sums = work.sums()
    sums["key_sum"][1, 0, 3, 2] = bad
    work.restore(sums)

    with pytest.raises(ComputeFailed, match=r"layer 1 are not finite \(key_sum\)"):
        work.check_finite()
