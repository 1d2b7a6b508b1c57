"""The causal test of falling norms: both runs, their changes, and what errors there are."""

import numpy as np
import pytest

from poskernel_core.analyses.induction.norm_cause import NormCause
from poskernel_core.analyses.induction.spec import InductionRecency
from poskernel_core.analyses.random_tokens.spec import RandomAttention
from poskernel_core.common.errors import BadRequest
from poskernel_core.engine.engine import describe_run
from tests import builders
from tests.test_switches import perform, subject_of

SAMPLES = 11
PAIRS = {"samples": SAMPLES, "length": 11, "first": 1, "silence": "L1H0"}
NAMES = ("probability", "probability_advantage", "probability_rise", "attention",
         "attention_advantage", "attention_rise", "slope")  # fmt: skip


@pytest.fixture(scope="module")
def found(model_dirs):
    """The test on a random GPT-2, and the experiments that it repeats, as they are and flat."""
    subject = subject_of(model_dirs["gpt2"])
    cause = perform(NormCause, subject, **PAIRS, random_length=17, trend_from=1)
    own = {"samples": SAMPLES, "silence": "L1H0", "length": 17, "trend_from": 1}
    runs = [
        (
            perform(InductionRecency, subject, **PAIRS, flatten=flatten),
            perform(RandomAttention, subject, **own, flatten=flatten),
        )
        for flatten in (False, True)
    ]
    return cause, runs


def over_rows(result, name, *place):
    """Mean over rows and its error, in plain loops."""
    values, errors = (part[name][(slice(None), *place)] for part in (result.values, result.errors))
    mean = sum(float(value) for value in values) / len(values)
    return mean, sum(float(error) ** 2 for error in errors) ** 0.5 / len(values)


@pytest.mark.parametrize("run", [0, 1])
def test_both_runs(found, run):
    """Means over rows of what the two experiments give, with errors of independent rows."""
    cause, (recency, rows) = found[0], found[1][run]
    layer, head = 1, 3
    expected = {
        "probability": over_rows(recency, "probability", 1),
        "probability_advantage": over_rows(recency, "advantage"),
        "attention_advantage": over_rows(recency, "attention_advantage", layer, head),
    }
    for name, (mean, error) in expected.items():
        place = (run,) if name.startswith("prob") else (run, layer, head)
        assert mean == pytest.approx(float(cause.values[name][place]), rel=1e-9)
        assert error == pytest.approx(float(cause.errors[name][place]), rel=1e-9)
    total = [over_rows(recency, "candidate_attention", layer, head, pair) for pair in (0, 1)]
    assert sum(mean for mean, _ in total) == pytest.approx(cause.values["attention"][run, 1, 3])
    for name in ("probability_rise", "attention_rise"):
        np.testing.assert_array_equal(recency.values[name], cause.values[name][run])
    np.testing.assert_array_equal(rows.values["slope"][..., -1], cause.values["slope"][run])
    np.testing.assert_array_equal(rows.errors["slope"][..., -1], cause.errors["slope"][run])


def test_changes(found):
    """Flat less as they are; errors as of independent runs; flat differs from as they are."""
    cause, _ = found
    for name in NAMES:
        clean, flat = cause.values[name]
        np.testing.assert_allclose(cause.values[f"{name}_change"], flat - clean)
        error = np.sqrt(cause.errors[name][0] ** 2 + cause.errors[name][1] ** 2)
        np.testing.assert_allclose(cause.errors[f"{name}_change"], error)
        assert np.abs(cause.values[f"{name}_change"]).max() > 0


@pytest.mark.slow
def test_a_recency_that_is_not_the_norms(tmp_path):
    """A head that prefers recent tokens by a slope in its scores does so whatever the norms."""
    path = builders.induction(tmp_path / "model", slope=0.4)
    cause = perform(NormCause, subject_of(path), samples=40, length=13, random_length=17)

    flat = cause.values["attention_advantage"][1, 1, 0]
    assert flat > 10 * cause.errors["attention_advantage"][1, 1, 0]
    assert cause.values["attention_rise"][1, 1, 0] > 0


def test_one_row_is_refused(model_dirs):
    """A rise needs two rows: one sentence."""
    run = describe_run(str(model_dirs["gpt2"]))
    params = NormCause.params(length=7, first=2)

    with pytest.raises(BadRequest, match="two rows or more"):
        NormCause().canonical(run, params)
    longer = NormCause.params(length=8, first=2, random_length=6)
    assert 8 == NormCause().canonical(run, longer).context
