"""Position against token: three runs by plain loops, rotary models from queries and keys."""

import math

import numpy as np
import pytest

from poskernel_core.analyses.position_vs_token.experiment import largest_offsets
from poskernel_core.analyses.position_vs_token.spec import PositionVsToken
from poskernel_core.data.layouts import random_layout
from tests.analyses.induction.test_recency import drawn
from tests.analyses.interventions.test_switches import perform, subject_of
from tests.support import builders, oracles, plain_gpt2
from tests.support import oracles_random as oracle
from tests.support.truth import truth_of

SAMPLES, LENGTH = 11, 11
BOTH, POSITION, TOKEN = range(3)
WINDOWS = {"llama": None, "mistral": 7}


def parts_of(scores, patterns):
    """What is taken from scores and patterns `[layer, head, query, key]` of one sequence."""
    profile = [[oracle.diagonal_means(head) for head in layer] for layer in patterns]
    return {
        "score": np.asarray(scores),
        "pattern": np.asarray(patterns),
        "profile": np.array(profile),
        "first_mass": np.asarray(patterns)[..., 1, 0],
    }


def check(result, condition, expected, atol=2e-5):
    """One condition's values and errors; scores are larger, and less exact."""
    for name, (mean, error) in expected.items():
        for found, truth in ((result.values[name], mean), (result.errors[name], error)):
            tolerance = 20 * atol if name == "score" else atol
            np.testing.assert_allclose(
                found[condition], truth, atol=tolerance, rtol=1e-5, err_msg=name
            )
    mean, error = expected["profile"]
    for layer, head in np.ndindex(mean.shape[:2]):
        half = mean[layer, head, : LENGTH // 2 + 1].tolist()
        k = half.index(max(half))
        assert k == result.values["largest_offset"][condition, layer, head]
        mass = result.values["largest_mass"][condition, layer, head]
        assert half[k] == pytest.approx(mass, abs=atol)
        spread = result.errors["largest_mass"][condition, layer, head]
        assert error[layer, head, k] == pytest.approx(spread, abs=atol)


def over_samples(each):
    """Means and errors of the parts of every sequence."""
    return {name: oracle.mean_and_error([one[name] for one in each]) for name in each[0]}


@pytest.mark.parametrize("start", [True, False])
def test_gpt2(model_dirs, start):
    path = model_dirs["gpt2"]
    rows = drawn(random_layout(LENGTH, start), 0, SAMPLES)

    result = perform(PositionVsToken, subject_of(path, start=start), samples=SAMPLES, length=LENGTH)

    edits = (
        plain_gpt2.Edits(),
        plain_gpt2.Edits(tokens=np.zeros_like),
        plain_gpt2.Edits(positions=np.zeros_like),
    )
    for condition, edit in enumerate(edits):
        seen = [oracle.see(path, ids, edit) for ids in rows]
        check(result, condition, over_samples([parts_of(o.scores, o.patterns) for o in seen]))
    assert 0 == np.nanmax(result.errors["pattern"][POSITION])
    assert np.nanmax(result.errors["pattern"][BOTH]) > 1e-2


def layers_of(queries, keys, window):
    """Parts of all heads from queries and keys `[layer][head, pos, d]`; heads share keys."""
    scores, patterns, back = [], [], np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    seen = (back >= 0) & (back < (window or LENGTH))
    for q, k in zip(queries, keys, strict=True):
        own = np.repeat(k, len(q) // len(k), axis=0).astype(float)
        score = np.where(seen, q.astype(float) @ own.swapaxes(1, 2) / math.sqrt(q.shape[2]), np.nan)
        weight = np.where(seen, np.exp(score - np.nanmax(score, axis=2, keepdims=True)), 0)
        scores.append(score)
        patterns.append(weight / weight.sum(axis=2, keepdims=True))
    return parts_of(scores, patterns)


@pytest.mark.parametrize("name", WINDOWS)
def test_rotary(model_dirs, name):
    """With both and with tokens only by text, with positions only from means over texts."""
    path, window = model_dirs[name], WINDOWS[name]
    rows = np.array(drawn(random_layout(LENGTH, True), 0, SAMPLES))
    truth, zero = truth_of(path, rows), truth_of(path, rows, still=True)

    result = perform(PositionVsToken, subject_of(path), samples=SAMPLES, length=LENGTH)

    for condition, seen in ((BOTH, truth), (TOKEN, zero)):
        each = [
            layers_of([q[text] for q in seen.queries], [k[text] for k in seen.keys], window)
            for text in range(SAMPLES)
        ]
        for text, one in enumerate(each):
            whole = np.stack([layer[text] for layer in seen.attentions])
            np.testing.assert_allclose(one["pattern"], whole, atol=1e-4)
        check(result, condition, over_samples(each))

    def of_means(texts):
        q, k = ([layer[texts].mean(axis=0) for layer in x] for x in (truth.queries, truth.keys))
        return layers_of(q, k, window)

    everyone = list(range(SAMPLES))
    whole = of_means(everyone)
    left = [of_means([t for t in everyone if t % 10 != group]) for group in range(10)]
    expected = {}
    for part, value in whole.items():
        stacked = np.stack([one[part] for one in left])
        error = np.sqrt(9 / 10 * ((stacked - stacked.mean(axis=0)) ** 2).sum(axis=0))
        expected[part] = (value, error)
    check(result, POSITION, expected)
    assert np.nanmax(result.errors["pattern"][POSITION]) > 1e-2
    if window is not None:
        assert np.isnan(result.values["score"][POSITION, :, :, 10, :4]).all()


@pytest.mark.parametrize("k", [1, 2])
def test_look_back(tmp_path, k):
    path = builders.look_back(tmp_path, k)
    length = 13

    result = perform(PositionVsToken, subject_of(path), samples=3, length=length)

    offset, mass = (result.values[n][:, 0, 0] for n in ("largest_offset", "largest_mass"))
    assert [k, k, 0] == offset.tolist()
    # queries from k + 1 on, whose other n keys share what the k-th before leaves
    power = math.exp(builders.LOOK_BACK_SCORE)
    truth = oracles.mean([power / (power + n) for n in range(k + 1, length)])
    assert truth == pytest.approx(mass[BOTH], abs=1e-5)
    assert mass[POSITION] > truth - 1e-6
    even = oracles.mean([1 / (n + 1) for n in range(1, length)])
    assert even == pytest.approx(mass[TOKEN], abs=1e-5)
    first = result.values["first_mass"][:, 0, 0]
    assert first.tolist() == pytest.approx([1.0 if k == 1 else 0.5] * 2 + [0.5], abs=1e-5)
    assert [0, 0, 0] == result.values["largest_offset"][:, 0, 1].tolist()
    # a lone position is rescaled by the norm: the score of what is looked back at grows
    score = result.values["score"][:, 0, 0, 9]
    contrast, power = score[:, 9 - k] - score[:, 3], builders.LOOK_BACK_SCORE
    assert [power, power * rescaling(path), 0] == pytest.approx(contrast, rel=1e-3, abs=1e-4)


def rescaling(path):
    """By how much the norm stretches squares of a lone position, from the weights' variances."""
    body = builders.hf_eager_model(path).transformer
    alone = body.wpe.weight[9].detach().double().var(correction=0)
    whole = (body.wpe.weight[9] + body.wte.weight[5]).detach().double().var(correction=0)
    return float(whole / alone)


def test_largest_offset_by_hand():
    profile = np.array([[0.1, 0.3, 0.2, 0.9, np.nan], [0.2, 0.1, 0.4, 0.0, np.nan]])
    assert [1, 2] == largest_offsets(profile).tolist()
