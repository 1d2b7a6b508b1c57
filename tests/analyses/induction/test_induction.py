"""Induction scores: plain loops, other architectures, and a circuit whose answer is known."""

import math

import numpy as np
import pytest

from poskernel_core.analyses.induction.spec import InductionRecency, InductionScores
from poskernel_core.data.layouts import TokenPool, sequences, twice_layout
from tests.analyses.interventions.test_switches import agree, perform, subject_of
from tests.support import builders, oracles
from tests.support import oracles_random as oracle
from tests.support.builders import LOOK_BACK_SCORE

SAMPLES, PERIOD = 7, 5
HEIGHT, SLOPE = 4.0, 0.2


@pytest.fixture(scope="module")
def circuits(tmp_path_factory):
    """Directories of two induction circuits: without, and with a preference for recent keys."""
    root = tmp_path_factory.mktemp("induction")
    return {slope: builders.induction(root / str(slope), slope=slope) for slope in (0.0, SLOPE)}


def twice(period, start, samples=SAMPLES, seed=3):
    source = TokenPool(np.arange(1, builders.VOCABULARY), builders.START, seed)
    return sequences(twice_layout(period, start), source, 0, range(samples)).tolist()


@pytest.mark.parametrize("start", [True, False])
def test_scores(model_dirs, start):
    path = model_dirs["gpt2"]
    rows = twice(PERIOD, start)
    seen = [oracle.see(path, ids) for ids in rows]

    result = perform(InductionScores, subject_of(path, start=start), samples=7, period=PERIOD)

    for name in ("induction", "duplicate", "previous_mass"):
        each = [
            [[oracle.induction_parts(head, start, PERIOD)[name] for head in layer]
             for layer in one.patterns]
            for one in seen
        ]  # fmt: skip
        agree(result, name, each, atol=1e-5)
    losses = [
        np.array(oracle.copy_losses(one.chances, ids, start, PERIOD))
        for one, ids in zip(seen, rows, strict=True)
    ]
    agree(result, "loss", losses, atol=1e-4)
    assert [1, 2] == result.coordinates["copy"].tolist()


@pytest.mark.parametrize("start", [True, False])
def test_scores_of_the_circuit(circuits, start):
    period = 11
    path, second = circuits[0.0], range(start + period, start + 2 * period)

    result = perform(InductionScores, subject_of(path, start=start), samples=3, period=period)

    high, back = math.exp(HEIGHT), math.exp(LOOK_BACK_SCORE)
    # without a start token, position 0 holds the first token and a copy of it
    copies = [1 + (n == period and not start) for n in second]
    pairs = [*zip(second, copies, strict=True)]
    even = oracles.mean([1 / (n + 1) for n in second])
    for name, tops in (("induction", [high for _ in pairs]),
                       ("duplicate", [high if c == 2 else 1 for _, c in pairs])):  # fmt: skip
        scores = [top / (c * high + n + 1 - c) for top, (n, c) in zip(tops, pairs, strict=True)]
        expected = [[1 / back, even], [oracles.mean(scores), even]]
        np.testing.assert_allclose(result.values[name], expected, atol=2e-5)
        np.testing.assert_allclose(result.errors[name], 0, atol=1e-6)
    assert result.values["induction"][1, 0] > 0.6


@pytest.mark.parametrize(("slope", "start"), [(0.0, True), (SLOPE, False)])
def test_recency_of_the_circuit(circuits, slope, start):
    subject = subject_of(circuits[slope], start=start)

    result = perform(InductionRecency, subject, samples=3)

    seconds = result.coordinates["second"].tolist()
    assert list(range(4, 11)) == seconds
    for row, second in enumerate(seconds):
        ids = list(range(100, 113))
        ids[2] = ids[second] = ids[12]
        attention, chances = builders.induction_truth(ids, slope=slope)
        last = result.values["last_row"][row, 1, 0]
        np.testing.assert_allclose(last, attention, atol=2e-5)
        expected = [chances[ids[3]], chances[ids[second + 1]]]
        np.testing.assert_allclose(result.values["probability"][row], expected, rtol=1e-3)
        ratio = last[second + 1] / last[3]
        assert math.exp(slope * (second - 2)) == pytest.approx(ratio, rel=1e-3)
    advantage = result.values["advantage"]
    if slope == 0:
        np.testing.assert_allclose(advantage, 0, atol=1e-4)
        assert 0 == pytest.approx(result.values["probability_rise"], abs=1e-4)
        assert result.values["probability"].min() > 0.1
    else:
        assert (np.diff(advantage) > 0.005).all()
        assert result.values["attention_rise"][1, 0] > 0.1
    # in the last row [C] is the predecessor of the last [A]
    back = math.exp(LOOK_BACK_SCORE)
    rise = [(back - 1) / (back + 12), 0]
    np.testing.assert_allclose(result.values["attention_rise"][0], rise, atol=1e-6)
