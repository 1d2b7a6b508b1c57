"""A pass on a device without float64, as Apple's GPUs are: the same numbers as on a CPU."""

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.models.catalog import locate
from poskernel_core.statistics import STATISTICS, Sizes
from poskernel_core.statistics.sinks import SinkSums
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS
from tests.support.without_float64 import MPS, OnMps, moved, mps

WINDOWS, CONTEXT = 6, 21
IDS = builders.random_ids(WINDOWS, CONTEXT, seed=4).numpy()


def test_the_device():
    """It computes, moves, makes and refuses as Apple's do."""
    with mps():
        ones = torch.ones(3, device=MPS)
        assert MPS == (ones + 1).device
        assert [2.0, 2.0, 2.0] == (ones + 1).cpu().tolist()
        for refused in (ones.double, lambda: ones.to("cpu", torch.float64),
                        lambda: torch.zeros(2, dtype=torch.float64, device=MPS),
                        lambda: ones.sum(dtype=torch.float64)):  # fmt: skip
            with pytest.raises(TypeError, match="doesn't support float64"):
                refused()
        with pytest.raises(RuntimeError, match="same device"):
            torch.zeros(3, device="cpu") + ones


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "gpt-oss"])
def test_a_whole_pass(tmp_path, model_dirs, name):
    """Every statistic is gathered there, and is that of a CPU to rounding."""
    path = model_dirs.get(name) or FAMILY_MODELS[name].build(tmp_path / name)
    model = pk.load(str(path), device="cpu")
    gather = tuple(STATISTICS)
    expected = pk.run_pass(model, IDS, gather=gather, batch=4).arrays

    with mps():
        found = pk.run_pass(moved(model), IDS, gather=gather, batch=4).arrays

    assert expected.keys() == found.keys()
    for each, array in expected.items():
        tolerance = 9 if each.endswith(".groups") else 1e-5  # of 32767 steps
        np.testing.assert_allclose(
            found[each].astype(float), array, rtol=1e-4, atol=tolerance, err_msg=each
        )


def test_sums_are_exact(model_dirs):
    """Numbers that are added from there are those of float32, and their sum that of float64."""
    geometry, texts = locate(str(model_dirs["gpt2"])).geometry, 40
    random = torch.Generator("cpu").manual_seed(1)
    noise = torch.randn(texts, geometry.n_heads, generator=random, device="cpu")
    values = 100 + 0.01 * noise
    statistic = SinkSums(Sizes(geometry, CONTEXT, texts, (20,), 1, False), MPS)

    with mps():
        for each in values:
            statistic.add("learned_sum", 0, OnMps(each))

    expected = values.double().sum(dim=0)
    assert torch.equal(expected, statistic.sums["learned_sum"][0])
    assert not torch.equal(expected.float(), values.sum(dim=0))
