"""The causal test of falling norms: both runs and their paired changes, by plain loops."""

import numpy as np

from poskernel_core.analyses.induction.norm_cause import NormCause
from poskernel_core.data.layouts import pairs_layout, random_layout
from poskernel_core.engine.engine import describe_run
from tests.analyses.induction.test_recency import drawn, one_sequence, switched
from tests.analyses.interventions.test_switches import perform, subject_of
from tests.support import oracles_random as oracle
from tests.support.refusals import refused

SAMPLES, LENGTH, SLOPE_LENGTH = 4, 9, 17


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


def last_slopes(path, ids, edits):
    """Slope of the last row of every head of one sequence."""
    patterns = oracle.see(path, ids, edits).patterns
    return np.array([[oracle.slopes(head, 1)[-1] for head in layer] for layer in patterns])


def three(before, after):
    """The norms as they are, equalised, and the change of one sequence."""
    return np.stack([before, after, after - before])


def by_loops(path):
    """All values, as they are, equalised and changed, with their errors: `{name: (mean, error)}`.

    Every sequence is run twice, its two numbers subtracted, and only then averaged.
    """

    def edits_of(length):
        runs = ({"equalise_norms": flatten, "length": length} for flatten in (False, True))
        return [switched(path, True, run, {"cells": [(1, 0)]}, SAMPLES)[0] for run in runs]

    rows, found = [], {}
    edits = edits_of(LENGTH)
    for second in range(3, LENGTH - 2):
        each = []
        for ids in drawn(pairs_layout(LENGTH, 1, second, 2, True), second, SAMPLES):
            before, after = (numbers(one_sequence(path, ids, True, one)) for one in edits)
            each.append({name: three(before[name], after[name]) for name in before})
        rows.append({name: oracle.mean_and_error([one[name] for one in each]) for name in each[0]})
    for name in rows[0]:
        means, errors = (np.array(part) for part in zip(*(row[name] for row in rows), strict=True))
        if name.endswith("rise"):
            found[name] = means[-1] - means[0], np.sqrt(errors[-1] ** 2 + errors[0] ** 2)
        else:
            found[name] = means.mean(axis=0), np.sqrt((errors**2).sum(axis=0)) / len(rows)
    edits = edits_of(SLOPE_LENGTH)
    each = [
        three(*(last_slopes(path, ids, one) for one in edits))
        for ids in drawn(random_layout(SLOPE_LENGTH, True), 0, SAMPLES)
    ]
    return found | {"slope": oracle.mean_and_error(each)}


def test_both_runs_and_their_changes(model_dirs, few_measured):
    path = model_dirs["gpt2"]
    asked = {"samples": SAMPLES, "length": LENGTH, "first": 1, "ablate": "L1H0"}
    cause = perform(NormCause, subject_of(path), **asked, random_length=SLOPE_LENGTH, trend_from=1)
    for name, pair in by_loops(path).items():
        for part, expected in zip((cause.values, cause.errors), pair, strict=True):
            for value, row in ((name, expected[:2]), (f"{name}_change", expected[2])):
                scale = np.abs(pair[0][2]).max()
                np.testing.assert_allclose(
                    part[value], row, rtol=1e-3, atol=2e-3 * scale, err_msg=value
                )
        assert scale > 0


def test_one_row_is_refused(model_dirs):
    run = describe_run(str(model_dirs["gpt2"]))
    with refused("two rows or more"):
        NormCause().canonical(run, NormCause.params(length=7, first=2))
    longer = NormCause.params(length=8, first=2, random_length=6)
    assert 8 == NormCause().canonical(run, longer).context
