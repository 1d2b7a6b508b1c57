"""Induction scores: plain loops, other architectures, and a circuit whose answer is known."""

import math

import numpy as np
import pytest
import torch

from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    InductionScores,
    RecencyPatterns,
)
from poskernel_core.analyses.position_vs_token.spec import PositionZero
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
        assert ("layer", "head") == result.axes[name]
    losses = [
        np.array(oracle.copy_losses(one.chances, ids, start, PERIOD))
        for one, ids in zip(seen, rows, strict=True)
    ]
    agree(result, "loss", losses, atol=1e-4)
    assert [1, 2] == result.coordinates["copy"].tolist()
    assert 4 == len(result.values) == len(result.errors)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_neo", "attn_only"])
def test_scores_elsewhere(model_dirs, name):
    rows = twice(PERIOD, True)
    attentions = builders.hf_eager_attentions(model_dirs[name], torch.tensor(rows))

    result = perform(InductionScores, subject_of(model_dirs[name]), samples=7, period=PERIOD)

    parts = [
        [[oracle.induction_parts(head, 1, PERIOD) for head in text] for text in layer.numpy()]
        for layer in attentions
    ]
    for part in ("induction", "duplicate", "previous_mass"):
        each = [[[head[part] for head in layer[text]] for layer in parts]
                for text in range(SAMPLES)]  # fmt: skip
        agree(result, part, each, atol=1e-5)


def uniform_mean(queries):
    return oracles.mean([1 / (n + 1) for n in queries])


@pytest.mark.parametrize("start", [True, False])
def test_scores_of_the_circuit(circuits, start):
    period = 11
    path, second = circuits[0.0], range(start + period, start + 2 * period)

    result = perform(InductionScores, subject_of(path, start=start), samples=3, period=period)

    high, back = math.exp(HEIGHT), math.exp(LOOK_BACK_SCORE)
    # without a start token, position 0 holds the first token and a copy of it
    copies = [1 + (n == period and not start) for n in second]
    scores = [high / (c * high + n + 1 - c) for n, c in zip(second, copies, strict=True)]
    duplicates = [
        (high if c == 2 else 1) / (c * high + n + 1 - c)
        for n, c in zip(second, copies, strict=True)
    ]
    even = uniform_mean(second)
    induction = [[1 / back, even], [oracles.mean(scores), even]]
    found = result.values["induction"]
    np.testing.assert_allclose(found, induction, atol=2e-5)
    assert 0.6 < oracles.mean(scores) == pytest.approx(found.max(), abs=2e-5)
    duplicate = [[1 / back, even], [oracles.mean(duplicates), even]]
    np.testing.assert_allclose(result.values["duplicate"], duplicate, atol=2e-5)
    previous = oracles.mean([back / (back + n) for n in range(1 + start, 2 * period + start)])
    assert previous == pytest.approx(result.values["previous_mass"][0, 0], abs=1e-6)
    uniform = uniform_mean(range(1 + start, 2 * period + start))
    assert uniform == pytest.approx(result.values["previous_mass"][0, 1], abs=1e-6)
    for name in ("induction", "duplicate", "previous_mass"):
        np.testing.assert_allclose(result.errors[name], 0, atol=1e-6)


def test_losses_of_the_circuit(circuits):
    period, rows = 7, twice(7, True, samples=3)
    losses = []
    for ids in rows:
        chances = [builders.induction_truth(ids[: n + 1])[1] for n in range(len(ids))]
        losses.append(np.array(oracle.copy_losses(np.array(chances), ids, 1, period)))

    result = perform(InductionScores, subject_of(circuits[0.0]), samples=3, period=period)

    np.testing.assert_allclose(result.values["loss"], np.mean(losses, axis=0), rtol=1e-3)
    assert result.values["loss"][0] > result.values["loss"][1] + 3


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("slope", [0.0, SLOPE])
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


def test_pattern_of_the_circuit(circuits):
    subject = subject_of(circuits[SLOPE])

    result = perform(RecencyPatterns, subject, samples=3, second=9, candidates=3, first=1)

    ids = [builders.START, *range(100, 112)]
    ids[1] = ids[3] = ids[9] = ids[12]
    expected = np.zeros((13, 13))
    for n in range(13):
        expected[n, : n + 1] = builders.induction_truth(ids[: n + 1], slope=SLOPE)[0]
    np.testing.assert_allclose(result.values["pattern"][1, 0], expected, atol=2e-5)


def test_position_zero_of_the_circuit(circuits):
    """At position 0, the copy of the predecessor is that of the token itself: [A] matches too."""
    result = perform(PositionZero, subject_of(circuits[0.0]), samples=3, length=7)

    rows = {1: [0, 50, 51, 52, 53, 54, 50], 0: [50, 51, 52, 53, 54, 50]}
    for case, (first, ids) in enumerate([(1, rows[1]), (0, rows[0]), (1, [60, *rows[1][1:]])]):
        attention, chances = builders.induction_truth(ids)
        assert chances[51] == pytest.approx(result.values["probability"][case], rel=1e-3)
        found = result.values["candidate_attention"][case, 1, 0]
        assert attention[first + 1] == pytest.approx(found, abs=2e-5)
        last = result.values["last_row"][case, 1, 0]
        np.testing.assert_allclose(last[1 - first :], attention, atol=2e-5)
        assert np.isnan(last[0]) == (first == 0)
        other = oracles.mean([chances[t] for t in (52, 53, 54)] + [chances[60]] * (case == 2))
        assert other == pytest.approx(result.values["probability_other"][case], rel=1e-2)
