"""A pass into a store that is too small for its sums."""

import pytest

from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.engine.engine import describe_run
from poskernel_core.passes import runner
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store

TEXT = CorpusSpec(name="text", text="She sells sea shells by the sea shore.")


@pytest.fixture
def gather(tmp_path, model_dirs, monkeypatch):
    """Gather a run into a store of 10 kB; the numbers of the windows that were read."""
    run = describe_run(str(model_dirs["llama"]), corpus=TEXT, context=41)
    read, reads = Pass._read, []

    def listen(work, tokens, rows):
        reads.extend(rows)
        read(work, tokens, rows)

    monkeypatch.setattr(Pass, "_read", listen)

    def gathered():
        shared = WorkerContext(Store(tmp_path, 0.00001))
        runner.gather_run(shared, run, Execution(), {}, lambda *_: None)

    return gathered, reads


def test_refused_before_a_window_is_read(gather):
    act, reads = gather
    told = (
        r"The statistics of this run take 0.0\d+ MB or more, the store holds 0.0107 MB: "
        "raise POSKERNEL_CACHE_GB"
    )

    with pytest.raises(BadRequest, match=told):
        act()

    assert [] == reads


def test_sums_that_are_dropped(gather, monkeypatch):
    """One sentence, and no word of shards."""
    act, reads = gather
    monkeypatch.setattr(Store, "check_holds", lambda store, size: None)

    with pytest.raises(ComputeFailed, match="the store is too small for this run") as caught:
        act()

    assert "shard" not in str(caught.value)
    assert reads
