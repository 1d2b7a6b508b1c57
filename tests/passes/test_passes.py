"""A pass over windows against loops over what plain transformers computes."""

import threading

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.common import groups
from poskernel_core.common.views import queries_of, without
from poskernel_core.forward import attention
from poskernel_core.forward.observers import Observer
from poskernel_core.forward.precision import precision
from poskernel_core.passes import streaming
from poskernel_core.passes.prepare import sizes_for
from tests.support import builders, oracles
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
def test_mean_keys(passes, truths, name):
    expected = [keys.mean(axis=0) for keys in truths[name].keys]

    close(passes[name].arrays["mean_keys"], expected)


def test_means_of_several_windows_a_group(loaded, model_dirs):
    """Thirty windows in ten groups: means of all, and of each group's three, by plain loops."""
    ids = builders.random_ids(30, 11, seed=3).numpy()
    found = pk.run_pass(loaded["gpt2"], ids, positions=(4, 10), gather=("keys", "patterns"))
    truth = truth_of(model_dirs["gpt2"], ids)

    for layer in range(3):
        arrays, keys = found.layer(layer), truth.keys[layer].astype(float)
        close(arrays["mean_keys"], keys.mean(axis=0))
        close(arrays["mean_rows"], truth.attentions[layer].mean(axis=0)[:, [4, 10]])
        for group in range(10):
            own = keys[3 * group : 3 * group + 3].mean(axis=0) - keys.mean(axis=0)
            close(arrays["mean_keys.groups"][group] * arrays["mean_keys.step"][0], own, 1e-4)


@EACH
def test_sampled_queries(passes, truths, name):
    """The windows' own queries, in order: one of each group at least, so all of seven groups."""
    found = passes[name]

    assert WINDOWS == found.header.samples
    for layer, queries in enumerate(truths[name].queries):
        expected = queries[:, :, list(POSITIONS)].transpose(2, 1, 0, 3)
        close(found.arrays["queries"][layer], expected)


@EACH
def test_mean_rows(passes, truths, name):
    expected = [a.mean(axis=0)[:, list(POSITIONS)] for a in truths[name].attentions]

    close(passes[name].arrays["mean_rows"], expected)


@EACH
@pytest.mark.parametrize("start", [0, 1])
def test_diagonal_profile(loaded, truths, name, start):
    found = gathered(loaded[name], start_token=start == 1).arrays["profile"]

    for layer, patterns in enumerate(truths[name].attentions):
        for head in range(patterns.shape[1]):
            expected = oracles.diagonal_profile(patterns[:, head].tolist(), start)
            close(found[layer, head], [*expected, *[0.0] * start])


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


@EACH
def test_mean_residuals(passes, truths, name):
    expected = [x.mean(axis=0) for x in truths[name].residuals]

    close(passes[name].arrays["mean_residuals"], expected, 2e-5)


@pytest.mark.parametrize("start", [0, 1])
def test_spread_of_the_stream(loaded, truths, start):
    """The mean over windows of its squared distance to its own mean over positions."""
    expected = []
    for stream in truths["gpt2"].residuals:
        rows = np.asarray(stream, dtype=float)[:, start:]
        expected.append(np.square(rows - rows.mean(axis=1, keepdims=True)).sum() / WINDOWS)

    found = gathered(loaded["gpt2"], start_token=bool(start)).arrays["centred_square"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "scale", "windows"),
    [
        ("gpt2", 7**-0.5, [None, None, None]),
        ("gpt_neo", 1.0, [None, 5, None]),
        ("llama", 10**-0.5, [None, None, None]),
        ("mistral", 14**-0.5, [7, 7, 7]),
    ],
)
def test_facts(passes, name, scale, windows):
    header = passes[name].header

    assert (pytest.approx(scale),) * 3 == header.scales
    assert tuple(windows) == header.sliding_windows


def test_a_window_that_hides_nothing_is_none(loaded):
    header = pk.run_pass(loaded["mistral"], IDS[:, :7]).header

    assert (None, None, None) == header.sliding_windows


@pytest.mark.parametrize("name", ["gpt_neo", "llama"])
@pytest.mark.parametrize("batch", [1, 7])
def test_batch_size_does_not_matter(loaded, passes, name, batch):
    expected = passes[name].arrays

    for key, found in gathered(loaded[name], batch=batch).arrays.items():
        close(found, expected[key], 3 if key.endswith(".groups") else 2e-6)


STATISTICS_OF_GROUPS = (*GATHER, "scores", "entropy", "sinks", "repeats", "headvis")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_means_without_a_group(loaded, name, monkeypatch):
    """They are those of a pass over the other groups' windows alone, up to half a step."""
    ids = builders.random_ids(30, 23, seed=9).numpy()
    gather = STATISTICS_OF_GROUPS + ("rotary",) * (name == "mistral")
    given = {"positions": (3, 11, 22), "queries_per_position": 99, "gather": gather}
    whole = pk.run_pass(loaded[name], ids, **given)
    alone = {"queries", "mean_residuals", "centred_square", "pair_speed", "pair_factor"}

    monkeypatch.setattr(groups, "GROUPS", 9)  # of the passes over the other groups alone
    for group in (0, 9):
        left = [window for window in range(30) if window // 3 != group]
        fresh = pk.run_pass(loaded[name], ids[left], **given)
        view = without(whole, group)
        assert (27, 27) == (view.header.windows, view.header.samples)
        assert 9 == view.header.groups
        for layer in range(3):
            arrays, found = whole.layer(layer), view.layer(layer)
            for key, expected in fresh.layer(layer).items():
                if key.endswith((".groups", ".step")):
                    continue
                if key in alone:
                    assert f"{key}.groups" not in arrays
                    continue
                step = arrays[f"{key}.step"][0] / 2 / 9
                off = np.abs(found[key].astype(float) - expected)
                assert np.isnan(found[key]).tolist() == np.isnan(expected).tolist()
                bound = step + 2e-6 * (1 + np.abs(expected)) + np.zeros_like(off)
                assert (off <= bound)[~np.isnan(off)].all(), key
            for place in range(3):
                expected = fresh.layer(layer)["queries"][place]
                close(ordered(queries_of(view, layer, place)), ordered(expected))
        with pytest.raises(KeyError, match="ask queries_of"):
            view.layer(0)["queries"]


def ordered(queries):
    """The samples in an order of their own, by the first number of the first head."""
    return queries[:, np.argsort(queries[0, :, 0])]


def test_sums_of_two_halves_add_up(loaded):
    model = loaded["llama"]
    ids = builders.random_ids(30, CONTEXT, seed=41).numpy()
    plan = sizes_for(model.geometry, ids, POSITIONS, 30, True)
    whole, left, right, resumed = (streaming.Pass(model, plan, GATHER) for _ in range(4))
    for work, rows in (
        (whole, range(4, 34, 10)),
        (left, range(4, 24, 10)),
        (right, range(24, 34, 10)),
    ):
        work.run(ids, rows, 2)
    resumed.restore(left.sums())
    resumed.run(ids, range(24, 34, 10), 2)

    assert GATHER == tuple(whole.block())
    for sums in (streaming.add(left.sums(), right.sums()), resumed.sums()):
        for key, expected in whole.sums().items():
            np.testing.assert_array_equal(sums[key], expected, err_msg=key)


def test_the_sums_of_a_block(loaded):
    plan = sizes_for(loaded["gpt2"].geometry, IDS, POSITIONS, SAMPLES, True)
    work = streaming.Pass(loaded["gpt2"], plan, GATHER)
    work.run(IDS, range(3, 10, 7))
    expected = work.sums()

    block = work.block()

    assert GATHER == tuple(block)
    found = {name: array for sums in block.values() for name, array in sums.items()}
    assert expected.keys() == found.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(expected[name], array, err_msg=name)
    work.clear()
    assert not any(array.any() for array in (*found.values(), *work.sums().values()))
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
