"""Runs over ready windows whose stages are looked at, and what a store holds of them."""

import numpy as np

from poskernel_core.common.errors import Cancelled
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.engine import execute
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.provenance import stored
from poskernel_core.passes import runner
from poskernel_core.passes.forming import FormingStatistics
from poskernel_core.storage.shards import Partial
from poskernel_core.storage.statistics import StoredStatistics, read_checkpoint

VERSIONS = {"torch": "1"}


def run_over(folder, model, ids, windows, **fields):
    """A run of a model over the first windows of a file that is written here."""
    np.save(folder / "ids.npy", ids)
    corpus = CorpusSpec(name=str(folder / "ids.npy"))
    given = {"context": ids.shape[1], "windows": windows, "start_token": False}
    return describe_run(str(model), corpus=corpus, **given).model_copy(update=fields)


def in_order(ids, windows):
    """The first windows of a file as a run has them: of ten stretches in turn, by their places."""
    each = len(ids) // 10
    return ids[[(window % 10) * each + window // 10 for window in range(windows)]]


def gather(shared, run, batch, on_stage=None, until=None):
    """Gather a run, and break off before the window with that number is read."""

    def report(done, total, note):
        if until is not None and note.startswith("Reading") and done >= until:
            raise Cancelled("Enough.")

    try:
        runner.gather_run(shared, run, Execution(batch=batch), VERSIONS, report, on_stage)
    except Cancelled:
        assert until is not None


def carried_out(shared, plan, batch=None, device="cpu"):
    """The result of a question that is answered in this process, with a worker's models."""
    store, execution = shared.store, Execution(device=device, batch=batch)
    plan = plan.looked_up(store)
    execute.gather_missing(shared, plan, execution, lambda *_: None)
    if plan.experiment:
        execute.perform(shared, plan, execution, lambda *_: None)
    else:
        execute.compute(store, plan, lambda *_: None)
    return stored(store, plan.key)


class Looked:
    """Looks at every stage of a pass, keeps its layers by the number of windows, and goes on."""

    def __init__(self):
        self.found = {}

    def __call__(self, stage):
        """Keep the layers at all recorded positions; no stage may come twice."""
        assert stage.windows not in self.found
        self.found[stage.windows] = layers_of(FormingStatistics(stage, stage.sizes.positions))
        return False


def held(store, run):
    """Header and layers of a run's statistics."""
    found = StoredStatistics.open(store, run)
    return found.header, layers_of(found)


def layers_of(view):
    """The arrays of every layer, copied."""
    layers = (view.layer(layer) for layer in range(view.header.n_layers))
    return [{name: np.array(array) for name, array in layer.items()} for layer in layers]


def same_bits(left, right):
    """Two lists of layers have the same arrays to the last bit."""
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape), name
            assert array.tobytes() == other[name].tobytes(), name


def nothing_left(store, run):
    """No checkpoint and no partial sums are in the way of the next run."""
    assert read_checkpoint(store, run) is None
    assert not any(Partial.read(store.get(key)[0]) for key in store.keys(""))
