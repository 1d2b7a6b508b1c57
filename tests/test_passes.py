"""A pass over windows against loops over what plain transformers computes."""

import inspect

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import ascending
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward import attention
from poskernel_core.passes import streaming
from poskernel_core.passes.plan import plan_for
from tests import builders, oracles
from tests.truth import truth_of

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
def loaded(model_dirs):
    """The four models."""
    return {name: pk.load(str(model_dirs[name]), device="cpu") for name in NAMES}


@pytest.fixture(scope="module")
def truths(model_dirs):
    """What plain transformers computes on the same windows."""
    return {name: truth_of(model_dirs[name], IDS) for name in NAMES}


def gathered(model, **changes):
    """The statistics of the pass that this module is about."""
    given = {"positions": POSITIONS, "queries_per_position": SAMPLES, "batch": 3}
    return pk.run_pass(model, IDS, **{**given, **changes})


def close(found, expected, tolerance=1e-5):
    """Equal up to a tolerance for values of order 1."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@EACH
def test_mean_keys(loaded, truths, name):
    """The mean over windows of the keys, rotated where the model rotates them."""
    expected = [keys.mean(axis=0) for keys in truths[name].keys]

    close(gathered(loaded[name]).arrays["mean_keys"], expected)


@EACH
def test_sampled_queries(loaded, truths, name):
    """The first windows' own queries, one a window, in order."""
    found = gathered(loaded[name]).arrays["queries"]

    for layer, queries in enumerate(truths[name].queries):
        expected = queries[:SAMPLES, :, list(POSITIONS)].transpose(2, 1, 0, 3)
        close(found[layer], expected)


@EACH
def test_mean_rows(loaded, truths, name):
    """The mean over windows of the attention at the recorded positions."""
    expected = [a.mean(axis=0)[:, list(POSITIONS)] for a in truths[name].attentions]

    close(gathered(loaded[name]).arrays["mean_rows"], expected)


@EACH
@pytest.mark.parametrize("start", [0, 1])
def test_diagonal_profile(loaded, truths, name, start):
    """The oracle's mean over texts and positions, with the start token left out or not."""
    found = gathered(loaded[name], start_token=start == 1).arrays["profile"]

    for layer, patterns in enumerate(truths[name].attentions):
        for head in range(patterns.shape[1]):
            expected = oracles.diagonal_profile(patterns[:, head].tolist(), start)
            close(found[layer, head], [*expected, *[0.0] * start])


@EACH
def test_error_of_the_profile(loaded, truths, name):
    """The spread over texts of each text's own profile, over the root of their number."""
    found = gathered(loaded[name]).arrays["profile_error"]

    for layer, patterns in enumerate(truths[name].attentions):
        for head in range(patterns.shape[1]):
            each = [oracles.diagonal_profile([text], 1) for text in patterns[:, head].tolist()]
            expected = np.std(each, axis=0, ddof=1) / np.sqrt(WINDOWS)
            close(found[layer, head, : CONTEXT - 1], expected)


@EACH
def test_mean_residuals(loaded, truths, name):
    """The mean residual stream before every layer."""
    expected = [x.mean(axis=0) for x in truths[name].residuals]

    close(gathered(loaded[name]).arrays["mean_residuals"], expected, 2e-5)


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
def test_facts(loaded, name, scale, windows):
    """Scale and sliding window of every layer are told by the model as it runs."""
    header = gathered(loaded[name]).header

    assert (pytest.approx(scale),) * 3 == header.scales
    assert tuple(windows) == header.sliding_windows


def test_a_window_that_hides_nothing_is_none(loaded):
    """A sliding window as wide as the context is no window."""
    header = pk.run_pass(loaded["mistral"], IDS[:, :7]).header

    assert (None, None, None) == header.sliding_windows


@pytest.mark.parametrize("name", ["gpt_neo", "llama"])
@pytest.mark.parametrize("batch", [1, 7])
def test_batch_size_does_not_matter(loaded, name, batch):
    """One window at a time or all at once: the same statistics."""
    expected = gathered(loaded[name]).arrays

    for key, found in gathered(loaded[name], batch=batch).arrays.items():
        close(found, expected[key], 2e-6)


def test_shards_do_not_matter(loaded, monkeypatch):
    """Cut into four shards, a pass gives what it gives in one."""
    expected = gathered(loaded["llama"]).arrays
    monkeypatch.setitem(streaming.TOKENS_PER_SHARD, "cpu", 2 * CONTEXT)

    assert [range(0, 2), range(2, 4), range(4, 6), range(6, 7)] == streaming.shards(
        WINDOWS, CONTEXT
    )
    for key, found in gathered(loaded["llama"]).arrays.items():
        close(found, expected[key], 2e-6)


@EACH
def test_sums_of_two_halves_add_up(loaded, name):
    """Two passes over disjoint windows merge by addition, and one goes on from another's sums."""
    model = loaded[name]
    plan = plan_for(model.geometry, IDS, POSITIONS, SAMPLES, True)
    whole, left, right, resumed = (streaming.Pass(model, plan, GATHER) for _ in range(4))
    whole.run(IDS, range(WINDOWS))
    left.run(IDS, range(3))
    right.run(IDS, range(3, WINDOWS))
    resumed.restore(left.sums())
    resumed.run(IDS, range(3, WINDOWS))

    expected = streaming.finish(whole.sums(), GATHER, plan)
    assert GATHER == tuple(expected)
    for sums in (streaming.add(left.sums(), right.sums()), resumed.sums()):
        for statistic, arrays in streaming.finish(sums, GATHER, plan).items():
            for key, found in arrays.items():
                close(found, expected[statistic][key], 2e-6)


def test_sums_are_a_copy(loaded):
    """Sums taken from a pass do not change while it goes on."""
    plan = plan_for(loaded["gpt2"].geometry, IDS, POSITIONS, SAMPLES, True)
    work = streaming.Pass(loaded["gpt2"], plan, ("keys",))
    work.run(IDS, range(3))
    before = work.sums()["key_sum"]
    kept = before.copy()

    work.run(IDS, range(3, WINDOWS))

    np.testing.assert_array_equal(kept, before)
    assert not np.allclose(kept, work.sums()["key_sum"])


def test_sums_that_are_handed_over(loaded):
    """They are the sums under their statistics' names, and nothing is added to them any more."""
    plan = plan_for(loaded["gpt2"].geometry, IDS, POSITIONS, SAMPLES, True)
    work = streaming.Pass(loaded["gpt2"], plan, GATHER)
    work.run(IDS, range(3))
    expected = work.sums()

    handed = work.hand_over()

    assert GATHER == tuple(handed)
    found = {name: array for sums in handed.values() for name, array in sums.items()}
    assert expected.keys() == found.keys()
    work.run(IDS, range(3, WINDOWS))
    for name, array in found.items():
        np.testing.assert_array_equal(expected[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("gather", "arrays"),
    [
        (("keys",), {"mean_keys"}),
        (("queries",), {"queries"}),
        (("residuals",), {"mean_residuals", "centred_square"}),
        (("keys", "queries"), {"mean_keys", "queries"}),
    ],
)
def test_each_statistic_alone(loaded, gather, arrays):
    """Without patterns the attention is fused; what else is gathered stays the same."""
    expected = gathered(loaded["gpt_neo"]).arrays

    alone = gathered(loaded["gpt_neo"], gather=gather).arrays

    assert arrays == set(alone)
    for key, found in alone.items():
        close(found, expected[key])


def test_bfloat16_error_is_measured(model_dirs):
    """The relative error of bfloat16 is neither 0 nor large, and that of float32 is 0."""
    model = pk.load(str(model_dirs["gpt2"]), device="cpu")
    plan = plan_for(model.geometry, IDS, POSITIONS, SAMPLES, True)

    assert 0.0 == streaming.dtype_error(model, plan, IDS, "float32")
    assert 1e-4 < streaming.dtype_error(model, plan, IDS, "bfloat16") < 0.1


BAD_WINDOWS = {
    "floats": (IDS.astype(float), "integers of shape"),
    "one axis": (IDS[0], "integers of shape"),
    "no windows": (IDS[:0], "integers of shape"),
    "token beyond the vocabulary": (IDS + 1000, r"0 \.\. 292; .* make the windows with the"),
    "negative token": (IDS - 1000, "0 .. 292"),
    "unequal lengths": ([[1, 2], [3]], "windows of unequal lengths"),
}
BAD_ARGUMENTS = {
    "nothing like it to gather": ({"gather": ["zzz"]}, "'gather.0' of 'run': .*'zzz'"),
    "no samples": (
        {"queries_per_position": 0},
        "'queries_per_position' of 'run': .*or equal to 1, got 0",
    ),
    "no batch": ({"batch": 0}, "'batch' of 'execution': .*got 0"),
    "batch below none": ({"batch": -1}, "'batch' of 'execution': .*got -1"),
}


# As users have it: the test suite's run-time check of shapes would refuse some of them earlier.
unchecked = inspect.unwrap(pk.run_pass)


@pytest.mark.parametrize("case", BAD_WINDOWS)
def test_bad_windows(loaded, case):
    """Windows that no model can read are refused in one sentence with the numbers."""
    windows, words = BAD_WINDOWS[case]

    with pytest.raises(BadRequest, match=words):
        unchecked(loaded["gpt2"], windows)


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(loaded, case):
    """What else does not fit is named in one sentence, too."""
    given, words = BAD_ARGUMENTS[case]

    with pytest.raises(BadRequest, match=words) as caught:
        unchecked(loaded["gpt2"], IDS, **given)

    assert "\n" not in str(caught.value)


BAD_RUNS = {
    "windows below none": ({"windows": -1}, "'windows' of 'run': .*got -1"),
    "no windows": ({"windows": 0}, "'windows' of 'run': .*got 0"),
    "none kept": ({"queries_per_position": 0}, "'queries_per_position' of 'run'"),
    "context in words": ({"context": "long"}, "Expected a whole number as context, got 'long'"),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_bad_runs(case):
    """A run that there cannot be is refused in one sentence before anything is computed."""
    given, words = BAD_RUNS[case]

    with pytest.raises(BadRequest, match=words) as caught:
        inspect.unwrap(describe_run)("demo-attn-2l", **given)

    assert "\n" not in str(caught.value)


def test_positions_in_words():
    """Whole numbers are taken once each, in order; words are named."""
    assert (2, 3, 7) == ascending(np.array([7, 2, 3, 7]))
    with pytest.raises(BadRequest, match="whole number as query position, got 'a'"):
        ascending(["a"])


def test_no_position_inside(loaded):
    """Query positions beyond the windows leave nothing to record."""
    with pytest.raises(BadRequest, match="No query position below 29"):
        gathered(loaded["gpt2"], positions=(29, 400))
