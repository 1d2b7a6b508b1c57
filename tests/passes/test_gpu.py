"""On a GPU: the numbers of a CPU, in every pass and of every question; memory that ends.

These tests need CUDA; ``python -m bench.gpu`` runs them beside what is measured there.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.analyses.kernels.formulas import mean_kernels
from poskernel_core.common import arithmetic
from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.differences import DIFFERENCES, STEP
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.forward.loading import load
from poskernel_core.models import catalog
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS
from poskernel_core.storage.store import Store
from tests.passes.test_devices import ASKED, IDS, answered
from tests.support import builders

GPU = "cuda"
TURNED = ("llama", "gpt-oss", "gemma2")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA"),
]


@pytest.fixture(autouse=True)
def arithmetic_here():
    """At first, arithmetic runs on the CPU, and again after the test."""
    arithmetic.run_on(None)
    yield
    arithmetic.run_on(None)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A worker with its store for each device, and a small text."""
    folder = tmp_path_factory.mktemp("gpu")
    builders.mini_corpus(folder)
    stores = {device: Store(folder / device) for device in ("cpu", GPU)}
    yield {device: WorkerContext(store) for device, store in stores.items()}, folder / "mini.txt"
    for store in stores.values():
        store.close()


@pytest.mark.parametrize("name", [*TURNED, "gpt2", "bloom"])
def test_a_whole_pass(model_dirs, name):
    """Every statistic is that of a CPU to rounding."""
    gather = tuple(each for each in STATISTICS if name in TURNED or each != "rotary")
    expected, found = (
        pk.run_pass(pk.load(str(model_dirs[name]), device=device), IDS, gather=gather, batch=4)
        for device in ("cpu", GPU)
    )

    assert expected.arrays.keys() == found.arrays.keys()
    for each in expected.arrays:
        steps = each.replace(DIFFERENCES, STEP) if each.endswith(DIFFERENCES) else None
        one, other = (
            run.arrays[each] * run.arrays.get(steps, np.float64(1)) for run in (found, expected)
        )
        rounded = 2 * expected.arrays[steps].max() if steps else 0
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 + rounded, err_msg=each)


def test_16_bits(model_dirs, tmp_path):
    """Attention of a pass in bfloat16 is that of 32 bits to some hundredths."""
    halved = AutoModelForCausalLM.from_pretrained(model_dirs["llama"], dtype=torch.bfloat16)
    halved.save_pretrained(tmp_path)
    located = catalog.locate(str(tmp_path))
    expected, found = (
        pk.run_pass(load(located, device, dtype), IDS, batch=4).arrays["mean_rows"]
        for device, dtype in (("cpu", "float32"), (GPU, "bfloat16"))
    )

    assert 0 < np.abs(found.astype(float) - expected).max() < 0.05


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("analysis", "name"), ASKED.items())
def test_every_question(workers, model_dirs, talking, analysis, name):
    """What it answers is what a CPU answers, to the rounding of 32 bits in a whole model."""
    places, text = workers
    model = model_dirs.get(name, talking)
    corpus = CorpusSpec(name=str(text) if name in model_dirs else "sample")

    expected = answered(places["cpu"], corpus, analysis, model)
    found = answered(places[GPU], corpus, analysis, model, GPU)

    for each, array in expected.values.items():
        np.testing.assert_allclose(
            found.values[each], array, rtol=1e-2, atol=1e-3, equal_nan=True, err_msg=each
        )


def test_arithmetic():
    """Mean kernels there are those here, and are computed here once the GPU's memory has ended."""
    draw = np.random.default_rng(5).standard_normal
    given = draw((32, 2003, 64)), draw((16, 307, 64)), ScoreRule(0.1), 3, 4
    expected = mean_kernels(*given)
    places = []

    def place(array):
        places.append(torch.tensor(array, device=GPU))
        return places[-1]

    try:
        arithmetic.run_on(place)
        found = mean_kernels(*given)
        assert {GPU} == {each.device.type for each in places}
        places.clear()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1e-9)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2**22, device=GPU)  # as large as the queries
        again = mean_kernels(*given)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

    for one, other, third in zip(found, expected, again, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_array_equal(third, other)
