"""What tasks must not do to each other: precision, and a cancel between two steps."""

import threading

import pytest
import torch

import poskernel_core as pk
from poskernel_core.common.errors import Cancelled
from poskernel_core.common.specs import CorpusSpec, Execution, ModelSpec, Request, RunSpec
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.queue import Queue, Task
from poskernel_core.forward.observers import Observer
from poskernel_core.forward.precision import precision
from tests.support import builders


def test_a_clean_run_never_stands_beside_a_pass_in_tf32(model_dirs):
    """It waits until the pass leaves TF32, and computes in the precision of before."""
    model = pk.load(str(model_dirs["gpt2"]), device="cpu")
    ids, seen = builders.random_ids(1, 7), []

    class Precision(Observer):
        def heads(self, layer, z, batch):
            seen.append(torch.get_float32_matmul_precision())

    run = threading.Thread(target=model.run, args=(ids, None, [Precision()]))
    before = torch.get_float32_matmul_precision()
    with precision("tf32"):
        assert "high" == torch.get_float32_matmul_precision() != before
        run.start()
        run.join(0.5)
        assert run.is_alive()
        assert [] == seen
    run.join(30)

    assert [before] * model.geometry.n_layers == seen


def test_a_cancel_between_two_steps():
    """A task that was cancelled since its last report does not wait for its next step."""
    run = RunSpec(
        model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
        context=7, windows=1, positions=(3,),
    )  # fmt: skip
    queue, task = Queue(), Task("key", make_plan(Request(analysis="etc", run=run)), Execution())
    queue.put(task)
    assert queue.get(on_device=False) is task

    task.cancel()
    with pytest.raises(Cancelled):
        queue.put(task)
    assert 0 == len(queue)
