"""Several candidates, position 0, and norms as the cause of recency: every value by plain loops."""

import numpy as np
import pytest

from poskernel_core.analyses.induction.norm_cause import NormCause
from poskernel_core.analyses.induction.spec import InductionRecency, RecencyPatterns
from poskernel_core.analyses.position_vs_token.spec import PositionZero
from poskernel_core.data.layouts import TokenPool, pairs_layout, random_layout, sequences
from poskernel_core.engine.engine import describe_run
from tests.analyses.interventions.test_switches import agree, perform, subject_of
from tests.support import builders, oracles
from tests.support import oracles_random as oracle
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("few_measured")
SAMPLES, LENGTH = 3, 9
FLATTENING = 1_000_000
RISES = {"probability": "probability_rise", "candidate_attention": "attention_rise"}
CELLS = [(0, 1), (1, 4)]
# start token, parameters, and what they switch off
CASES = {
    "plain": (True, {}, {}),
    "no start": (False, {"first": 0, "candidates": 3}, {}),
    "one pair": (True, {"first": 1, "candidates": 1, "length": 5}, {}),
    "uniform": (
        True,
        {"ablate": "L0H1, L1H4", "ablation": "uniform"},
        {"cells": CELLS, "what": "pattern"},
    ),
    "flat": (True, {"equalise_norms": True}, {}),
    "flat and more": (
        False,
        {"equalise_norms": True, "ablate": "L0H1,L1H4", "no_positions": True},
        {"cells": CELLS, "no_positions": True},
    ),
}


def drawn(layout, stream, samples=SAMPLES, seed=3):
    source = TokenPool(np.arange(1, builders.VOCABULARY), builders.START, seed)
    return sequences(layout, source, stream, range(samples)).tolist()


def switched(path, start, params, switches, samples=SAMPLES):
    if not params.get("equalise_norms"):
        return oracle.switched(**switches), None
    rows = drawn(random_layout(params.get("length", LENGTH), start), FLATTENING, samples)
    edits = oracle.switched(**switches)
    norms = oracle.root_norms([oracle.see(path, ids, edits).squares for ids in rows])
    return oracle.switched(**switches, factor=oracle.factors(norms, int(start))), norms


def one_sequence(path, ids, start, edits):
    """What one sequence says, by the names of the values."""
    seen, after = oracle.see(path, ids, edits), oracle.candidates(ids)
    last, chances = seen.patterns[:, :, -1], seen.chances[-1]
    found = last[:, :, after]
    rest = [float(chances[ids[n]]) for n in oracle.others(ids, start)]
    return {
        "probability": np.array([chances[ids[n]] for n in after]),
        "probability_other": np.array(oracles.mean(rest)),
        "advantage": chances[ids[after[-1]]] - chances[ids[after[0]]],
        "last_row": last,
        "candidate_attention": found,
        "attention_advantage": found[..., -1] - found[..., 0],
    }


@pytest.mark.parametrize("case", ["no start", "one pair", "uniform", "flat and more"])
def test_recency(model_dirs, case):
    path, (start, changed, switches) = model_dirs["gpt2"], CASES[case]
    params = {"length": LENGTH, "first": 2, "candidates": 2} | changed
    edits, norms = switched(path, start, params, switches)

    result = perform(InductionRecency, subject_of(path, start=start), samples=SAMPLES, **params)

    first, candidates, length = params["first"], params["candidates"], params["length"]
    seconds = list(range(first + 2 * (candidates - 1), length - 2))
    assert seconds == result.coordinates["second"].tolist()
    rows = []
    for row, second in enumerate(seconds):
        layout = pairs_layout(length, first, second, candidates, start)
        each = [one_sequence(path, ids, start, edits) for ids in drawn(layout, second)]
        rows.append({name: oracle.mean_and_error([one[name] for one in each]) for name in each[0]})
        assert layout.roles() == result.values["role"][row].tolist()
        assert [f"t{i}" for i in drawn(layout, second)[0]] == result.texts["examples"][row].tolist()
    check_rows(result, rows)
    if norms is None:
        assert "norm" not in result.values
    else:
        np.testing.assert_allclose(result.values["norm"], norms, rtol=1e-5, atol=1e-7)


def check_rows(result, rows):
    """The rows of a result against means and errors by plain loops; last, those over rows."""
    for name in rows[0]:
        for place in (0, 1):
            compare(result, name, place, [row[name][place] for row in rows])
    for source, name in RISES.items():
        (before, error), (after, other) = rows[0][source], rows[-1][source]
        alone = np.nan if len(rows) == 1 else 1
        compare(result, name, 0, (after[..., -1] - before[..., -1]) * alone)
        compare(result, name, 1, np.sqrt(error[..., -1] ** 2 + other[..., -1] ** 2) * alone)
    assert set(result.errors) == set(result.values) - {"role", "norm"}
    assert result.errors["candidate_attention"].max() > 1e-2


def compare(result, name, place, expected):
    """Value (0) or error (1) of a name; a random model's probabilities are very small."""
    found = (result.values, result.errors)[place][name]
    small = name.startswith(("prob", "advantage"))
    atol = 1e-4 * np.abs(result.values["probability"]).max() if small else 2e-5
    np.testing.assert_allclose(found, expected, atol=atol, rtol=1e-3, err_msg=name)


def test_patterns(model_dirs):
    path, (start, changed, switches) = model_dirs["gpt2"], CASES["flat"]
    edits, _ = switched(path, start, changed, switches)

    result = perform(
        RecencyPatterns, subject_of(path), samples=SAMPLES, length=LENGTH, second=5, **changed
    )

    layout = pairs_layout(LENGTH, 2, 5, 2, start)
    each = [oracle.see(path, ids, edits).patterns for ids in drawn(layout, 5)]
    agree(result, "pattern", each, atol=2e-5)
    assert layout.roles() == result.values["role"].tolist()


def test_position_zero(model_dirs):
    path, length = model_dirs["gpt2"], 7

    result = perform(PositionZero, subject_of(path), samples=SAMPLES, length=length)

    for case, (start, first) in enumerate(((True, 1), (False, 0), (False, 1))):
        rows = drawn(pairs_layout(length - 1 + first, first, first, 1, start), case)
        assert [[first + 1]] * SAMPLES == [oracle.candidates(ids) for ids in rows]
        each = [one_sequence(path, ids, start, None) for ids in rows]
        for one in each:
            one["probability"] = one["probability"][0]
            one["candidate_attention"] = one["candidate_attention"][..., 0]
            one["last_row"] = np.pad(
                one["last_row"], [(0, 0), (0, 0), (1 - first, 0)], constant_values=np.nan
            )
        for name in ("probability", "probability_other", "last_row", "candidate_attention"):
            mean, error = oracle.mean_and_error([one[name] for one in each])
            atol = 1e-3 * mean.max() if name.startswith("prob") else 2e-5
            np.testing.assert_allclose(result.values[name][case], mean, atol=atol)
            np.testing.assert_allclose(result.errors[name][case], error, atol=atol)


SLOPE_LENGTH = 17


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


def test_both_runs_and_their_changes(model_dirs):
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
