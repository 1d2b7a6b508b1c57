"""The causal test of falling norms: both runs, their changes, and what errors there are."""

import numpy as np
import pytest
import torch

from poskernel_core.analyses.induction.experiment.norm_cause import paired
from poskernel_core.analyses.induction.norm_cause import NormCause
from poskernel_core.analyses.induction.spec import InductionRecency
from poskernel_core.analyses.random_tokens.spec import RandomAttention
from poskernel_core.data.layouts import pairs_layout, random_layout
from poskernel_core.engine.engine import describe_run
from poskernel_core.statistics.moments import Moments
from tests.analyses.induction.test_recency import drawn, one_sequence, switched
from tests.analyses.interventions.test_switches import perform, subject_of
from tests.support import oracles_random as oracle
from tests.support.refusals import refused

SAMPLES = 4
PAIRS = {"samples": SAMPLES, "length": 9, "first": 1, "ablate": "L1H0"}


@pytest.fixture(scope="module")
def found(model_dirs):
    """The test on a random GPT-2, and the experiments that it repeats, as they are and flat."""
    subject = subject_of(model_dirs["gpt2"])
    own = {"samples": SAMPLES, "ablate": "L1H0", "length": 17, "trend_from": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poskernel_core.analyses.random_tokens.experiment.sampled.MEASURED", SAMPLES)
        cause = perform(NormCause, subject, **PAIRS, random_length=17, trend_from=1)
        runs = [
            (
                perform(InductionRecency, subject, **PAIRS, equalise_norms=equalise),
                perform(RandomAttention, subject, **own, equalise_norms=equalise),
            )
            for equalise in (False, True)
        ]
    return cause, runs


def over_rows(result, name, *place):
    """Mean over rows and its error, in plain loops."""
    values, errors = (part[name][(slice(None), *place)] for part in (result.values, result.errors))
    mean = sum(float(value) for value in values) / len(values)
    return mean, sum(float(error) ** 2 for error in errors) ** 0.5 / len(values)


@pytest.mark.parametrize("run", [0, 1])
def test_both_runs(found, run):
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
    same = {"rtol": 1e-9, "atol": 1e-15}
    for name in ("probability_rise", "attention_rise"):
        np.testing.assert_allclose(recency.values[name], cause.values[name][run], **same)
        np.testing.assert_allclose(recency.errors[name], cause.errors[name][run], **same)
    for one, other in ((rows.values, cause.values), (rows.errors, cause.errors)):
        np.testing.assert_allclose(one["slope"][..., -1], other["slope"][run], **same)


def numbers(seen):
    """What one sequence of pairs says, by the names of the values; rises have one row each."""
    return {
        "probability": seen["probability"][-1],
        "probability_advantage": seen["advantage"],
        "probability_rise": seen["probability"][-1],
        "attention": seen["candidate_attention"].sum(axis=-1),
        "attention_advantage": seen["attention_advantage"],
        "attention_rise": seen["candidate_attention"][..., -1],
    }


def paired_in_loops(path):
    """Flat less clean of every value, and its error: `{name: (mean, error)}`.

    Every sequence is run twice, its two numbers subtracted, and only then averaged.
    """
    rows = []
    clean, flat = (edits_of(path, PAIRS["length"], flatten) for flatten in (False, True))
    for second in range(3, PAIRS["length"] - 2):
        layout = pairs_layout(PAIRS["length"], 1, second, 2, True)
        changes = []
        for ids in drawn(layout, second, SAMPLES):
            before, after = (numbers(one_sequence(path, ids, True, e)) for e in (clean, flat))
            changes.append({name: after[name] - before[name] for name in before})
        rows.append(changes)
    found = {}
    for name in rows[0][0]:
        pairs = [oracle.mean_and_error([one[name] for one in changes]) for changes in rows]
        (first, error), (last, other) = pairs[0], pairs[-1]
        mean = sum(pair[0] for pair in pairs) / len(pairs)
        spread = np.sqrt(sum(pair[1] ** 2 for pair in pairs)) / len(pairs)
        rise = last - first, np.sqrt(error**2 + other**2)
        found[name] = rise if name.endswith("rise") else (mean, spread)
    clean, flat = (edits_of(path, 17, flatten) for flatten in (False, True))
    changes = []
    for ids in drawn(random_layout(17, True), 0, SAMPLES):
        before, after = (last_slopes(path, ids, edits) for edits in (clean, flat))
        changes.append(after - before)
    return found | {"slope": oracle.mean_and_error(changes)}


def edits_of(path, length, flatten):
    """Plain GPT-2's edits of one run of sequences of a length."""
    params = {"equalise_norms": flatten, "length": length}
    return switched(path, True, params, {"cells": [(1, 0)]}, SAMPLES)[0]


def last_slopes(path, ids, edits):
    """Slope of the last row of every head of one sequence."""
    patterns = oracle.see(path, ids, edits).patterns
    return np.array([[oracle.slopes(head, 1)[-1] for head in layer] for layer in patterns])


def test_changes(found, model_dirs):
    cause = found[0]
    for name, (mean, error) in paired_in_loops(model_dirs["gpt2"]).items():
        values, errors = (part[f"{name}_change"] for part in (cause.values, cause.errors))
        scale = np.abs(mean).max()
        np.testing.assert_allclose(values, mean, rtol=1e-3, atol=2e-3 * scale, err_msg=name)
        np.testing.assert_allclose(errors, error, rtol=1e-3, atol=2e-3 * scale, err_msg=name)
        assert scale > 0


def test_errors_of_paired_numbers():
    """Two sequences of 1 and 3 become 2 and 5: changes of 1 and 2, 1.5 with an error of 0.5."""
    moments = Moments()
    moments.add(paired(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 5.0])))
    np.testing.assert_allclose([2.0, 3.5, 1.5], moments.mean)
    np.testing.assert_allclose([1.0, 1.5, 0.5], moments.error)


def test_one_row_is_refused(model_dirs):
    run = describe_run(str(model_dirs["gpt2"]))
    params = NormCause.params(length=7, first=2)
    with refused("two rows or more"):
        NormCause().canonical(run, params)
    longer = NormCause.params(length=8, first=2, random_length=6)
    assert 8 == NormCause().canonical(run, longer).context
