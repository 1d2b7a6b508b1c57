"""A pass over windows against loops over what plain transformers computes."""

import threading

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.common.views import without
from poskernel_core.forward import attention
from poskernel_core.forward.observers import Observer
from poskernel_core.forward.precision import precision
from poskernel_core.passes import streaming
from poskernel_core.passes.prepare import sizes_for
from tests.support import builders
from tests.support.truth import truth_of

NAMES = ("gpt2", "gpt_neo", "llama", "mistral")
EACH = pytest.mark.parametrize("name", NAMES)
WINDOWS, CONTEXT, SAMPLES = 7, 29, 5
POSITIONS = (0, 3, 11, 12, 28)
IDS = builders.random_ids(WINDOWS, CONTEXT, seed=41).numpy()
GATHER = ("keys", "queries", "patterns", "residuals")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 11 rows, so that a window of 29 tokens takes three."""
    monkeypatch.setattr(attention, "BLOCK", 11)


@pytest.fixture(scope="module")
def passes(loaded):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "BLOCK", 11)
        return {name: gathered(loaded[name]) for name in NAMES}


@pytest.fixture(scope="module")
def truths(model_dirs):
    return {name: truth_of(model_dirs[name], IDS) for name in NAMES}


def gathered(model, **changes):
    given = {"positions": POSITIONS, "queries_per_position": SAMPLES, "batch": 3}
    return pk.run_pass(model, IDS, **{**given, **changes})


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@EACH
def test_means_and_sampled_queries(passes, truths, name):
    """Of all windows; a window of each group at least gives its queries, so all of seven groups."""
    found, truth, places = passes[name], truths[name], list(POSITIONS)
    assert WINDOWS == found.header.samples
    expected = {
        "mean_keys": [each.mean(axis=0) for each in truth.keys],
        "mean_rows": [each.mean(axis=0)[:, places] for each in truth.attentions],
        "mean_residuals": [each.mean(axis=0) for each in truth.residuals],
        "queries": [each[:, :, places].transpose(2, 1, 0, 3) for each in truth.queries],
    }
    for value, arrays in expected.items():
        close(found.arrays[value], arrays, 2e-5 if value == "mean_residuals" else 1e-5)


@pytest.mark.parametrize(("samples", "taken"), [(19, 10), (29, 20), (99, 30)])
def test_as_many_queries_of_each_group(loaded, samples, taken):
    """Of thirty windows the first ones give queries, equally many of each of ten groups."""
    ids = builders.random_ids(30, 11, seed=3).numpy()
    given = {"positions": (4, 10), "gather": ("queries",)}
    few, whole = (
        pk.run_pass(loaded["gpt2"], ids, queries_per_position=each, **given)
        for each in (samples, 99)
    )

    assert (taken, taken) == (few.header.samples, few.arrays["queries"].shape[3])
    np.testing.assert_array_equal(whole.arrays["queries"][:, :, :, :taken], few.arrays["queries"])
    for sample, window in ((2, 6), (22, 8)):  # the third stretch holds windows 6, 7 and 8
        one = pk.run_pass(loaded["gpt2"], ids[window : window + 1], **given).arrays["queries"]
        close(whole.arrays["queries"][:, :, :, sample], one[:, :, :, 0])
    with pytest.raises(KeyError, match="ask queries_of"):
        without(whole, 0).layer(0)["queries"]


@pytest.mark.parametrize("start", [0, 1])
def test_spread_of_the_stream(loaded, truths, start):
    """The mean over windows of its squared distance to its own mean over positions."""
    expected = []
    for stream in truths["gpt2"].residuals:
        rows = np.asarray(stream, dtype=float)[:, start:]
        expected.append(np.square(rows - rows.mean(axis=1, keepdims=True)).sum() / WINDOWS)

    found = gathered(loaded["gpt2"], start_token=bool(start)).arrays["centred_square"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_window_that_hides_nothing_is_none(passes, loaded):
    assert (None, 5, None) == passes["gpt_neo"].header.sliding_windows
    short = pk.run_pass(loaded["gpt_neo"], IDS[:, :5]).header
    assert (None, None, None) == short.sliding_windows


@pytest.mark.parametrize("name", ["gpt_neo", "llama"])
@pytest.mark.parametrize("batch", [1, 7])
def test_batch_size_does_not_matter(loaded, passes, name, batch):
    expected = passes[name].arrays

    for key, found in gathered(loaded[name], batch=batch).arrays.items():
        close(found, expected[key], 3 if key.endswith(".groups") else 2e-6)


def test_sums_of_two_halves_add_up(loaded):
    model = loaded["llama"]
    ids = builders.random_ids(30, CONTEXT, seed=41).numpy()
    plan = sizes_for(model.geometry, ids, POSITIONS, 30, True)
    whole, left, right, resumed = (streaming.Pass(model, plan, GATHER) for _ in range(4))
    halves = range(4, 24, 10), range(24, 34, 10)
    for work, rows in zip((whole, left, right), (range(4, 34, 10), *halves), strict=True):
        work.run(ids, rows, 2)
    resumed.restore(left.sums())
    resumed.run(ids, halves[1], 2)

    block, expected = whole.block(), whole.sums()
    assert GATHER == tuple(block)
    parts = {name: array for sums in block.values() for name, array in sums.items()}
    for sums in (streaming.add(left.sums(), right.sums()), resumed.sums(), parts):
        assert expected.keys() == sums.keys()
        for key, array in expected.items():
            np.testing.assert_array_equal(sums[key], array, err_msg=key)
    whole.clear()
    assert not any(array.any() for array in (*parts.values(), *whole.sums().values()))
    assert all(array.any() for array in expected.values())  # which is a copy


@pytest.mark.parametrize(
    ("gather", "arrays"),
    [
        (("keys",), {"mean_keys", "mean_keys.groups", "mean_keys.step"}),
        (("queries",), {"queries"}),
        (("residuals",), {"mean_residuals", "centred_square"}),
        (("keys", "queries"), {"mean_keys", "mean_keys.groups", "mean_keys.step", "queries"}),
    ],
)
def test_each_statistic_alone(loaded, passes, gather, arrays):
    """Without patterns the attention is fused; what else is gathered stays the same."""
    expected = passes["gpt_neo"].arrays

    alone = gathered(loaded["gpt_neo"], gather=gather).arrays

    assert arrays == set(alone)
    for key, found in alone.items():
        if not key.endswith(".groups"):  # 16-bit counts of steps, of which the last may differ
            close(found, expected[key])


def test_a_clean_run_never_stands_beside_a_pass_in_tf32(loaded):
    """It waits until the pass leaves TF32, and computes in the precision of before."""
    model = loaded["gpt2"]
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
