"""Denominators along positions, content weights of tokens, by plain loops; what one query sees."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from poskernel_core.analyses.contextual_heads.denominators import Denominators, TokenWeights
from poskernel_core.analyses.contextual_heads.experiment.contents import last_rows
from tests.support import builders, oracles
from tests.support import oracles_contextual as oracle
from tests.support.builders import VOCABULARY, contextual
from tests.support.builders.contextual import CASES, perform, some_windows, study, with_token
from tests.support.truth import truth_of

CELLS = {"learned": "L2H3", "skip in window": "L1H4", "grouped in window": "L0H3"}


def rows_of(path, main, windows, skip=0, batch=None, layers=None):
    subject, _ = study(path, windows, batch=batch)
    subject = replace(subject, statistics={"main": main})
    return [row for _, rows in last_rows(subject, windows, skip, layers) for row in rows]


@pytest.mark.parametrize("name", ["gpt_neo", "opt", "grouped"])
def test_identity(paths, name):
    """Kernel times weight over denominator is plain transformers' attention, for any means."""
    windows = some_windows(3, 13, True)
    truth = builders.hf_eager_attentions(paths[name], torch.from_numpy(windows))
    _, main = study(paths[name], some_windows(5, 17, True, seed=7))

    for row in rows_of(paths[name], main, windows):
        pattern = (row.kernel * row.log_weight.exp() / row.denominator[..., None])[0]
        seen = truth[row.layer][:, :, -1]
        np.testing.assert_allclose(seen[..., row.first :], pattern, atol=2e-5)
        np.testing.assert_array_equal(seen[..., : row.first], 0)
        np.testing.assert_allclose(row.kernel.sum(dim=-1), 1, atol=1e-12)
        assert row.log_weight.abs().max() > 0.3
    assert row.layer == len(truth) - 1


@pytest.mark.parametrize("case", CELLS)
def test_every_position(paths, case):
    name, _, skip, start, window, divisor = CASES[case]
    windows = some_windows(20, 19, start)
    subject, main = study(paths[name], windows, start)
    means = oracle.mean_keys_kept(paths[name], windows)
    cell = (int(CELLS[case][1]), int(CELLS[case][3]))

    found = perform(
        Denominators, subject, main, head=CELLS[case], skip=skip, n_positions=5, first_windows=23
    )

    queries = found.coordinates["query"].tolist()
    assert (skip + 1, 18, 5) == (queries[0], queries[-1], len(queries))
    steps = {b - a for a, b in pairwise(queries)}
    assert max(steps) - min(steps) <= 1
    for number, query in enumerate(queries):
        truth = truth_of(paths[name], with_token(windows, query, subject.single_id(" the")))
        place = cell, 1 / divisor[cell[0]], query, skip, window[cell[0]]
        expected, errors, biases = oracle.moments_and_errors(truth, means, *place)
        for value in ("denominator_cv", "predicted_cv", "etc"):
            at = float(found.values[value][number])
            assert expected[value] == pytest.approx(at, rel=2e-4, abs=1e-6)
        rows = oracle.head_rows(truth, means[0], *place)
        np.testing.assert_allclose(found.values["denominator"][:, number], rows.denominators, 2e-4)
        for held, known in ((found.errors, errors), (found.biases, biases)):
            at = [float(held[name][number]) for name in ("mean", "denominator_cv")]
            known = known["denominator"], known["denominator_cv"]
            assert known == pytest.approx(at, rel=2e-3, abs=2e-4)
        assert expected["denominator"] == pytest.approx(found.values["mean"][number], rel=2e-4)


def test_positions_by_hand(paths):
    """From 5 to 12 in four steps of 7/3: 5, 7, 10, 12; more places than positions are all."""
    subject, main = study(paths["gpt2"], some_windows(3, 13, True))
    for places, expected in ((4, [5, 7, 10, 12]), (50, list(range(5, 13)))):
        found = perform(Denominators, subject, main, n_positions=places, first_windows=2)
        assert expected == found.coordinates["query"].tolist()
        assert (2, len(expected)) == found.values["denominator"].shape
        assert np.isnan(found.errors["denominator_cv"]).all()  # of two texts


UP, BY, LENGTH = 211, 1.5, 31
EIGHTHS = (1 / 8, 3 / 8, 5 / 8, 7 / 8)
WEIGHED = {"learned": "L2H3", "grouped in window": "L2H3"}


@pytest.fixture(scope="module")
def one_up(tmp_path_factory):
    strengths = [BY * (token == UP) for token in range(VOCABULARY)]
    return contextual.additive(tmp_path_factory.mktemp("weights") / "one up", strengths, LENGTH)


def latin(length=LENGTH):
    """Windows in which every ordinary token stands at every place once, ten times over."""
    pool = np.arange(1, VOCABULARY)
    return np.stack([np.roll(pool, -shift)[:length] for shift in range(len(pool))] * 10)


def check(found, kept, windows, fewest):
    """Mean, error and number of each token's places, by loops; rare ones are left out.

    `kept` are the rows with the mean keys of all windows, and without each group of one.
    """
    scores = oracle.token_scores(kept[0], windows)
    left = []
    for out, rows in enumerate(kept[1:]):
        rest = [text for text in range(len(windows)) if text != out]
        chosen = oracle.Rows(rows.n, rows.kernels, [rows.scores[text] for text in rest])
        left.append(oracle.token_scores(chosen, windows[rest]))
    often = sorted(t for t, each in scores.items() if len(each) >= fewest and t != builders.START)
    assert often == found.coordinates["token"].tolist()
    for place, token in enumerate(often):
        assert len(scores[token]) == found.values["count"][place]
        middle = oracles.mean(scores[token])
        assert middle == pytest.approx(float(found.values["log_weight"][place]), abs=1e-4)
        error, bias = float(found.errors["log_weight"][place]), found.biases["log_weight"][place]
        if not all(token in each for each in left):
            assert math.isnan(error)
            continue
        without = [oracles.mean(each[token]) for each in left]
        assert oracles.jackknife_se(without) == pytest.approx(error, abs=1e-3)
        assert (len(left) - 1) * (oracles.mean(without) - middle) == pytest.approx(bias, abs=2e-3)
    return often


@pytest.mark.parametrize(("case", "batch"), [("learned", None), ("grouped in window", 4)])
def test_later_layers(paths, case, batch):
    name, query, skip, start, window, divisor = CASES[case]
    windows = 1 + some_windows(9, 23, False) % 31
    windows[:, : int(start)] = builders.START
    subject, main = study(paths[name], windows, start, batch)
    layer, head = int(WEIGHED[case][1]), int(WEIGHED[case][3])
    changed = with_token(windows, query, subject.single_id(" the"))
    truth, kept = truth_of(paths[name], changed), oracle.mean_keys_kept(paths[name], windows)
    place = (layer, head), 1 / divisor[layer], query, skip, window[layer]
    rows = [oracle.head_rows(truth, means, *place) for means in kept]

    for fewest in (1, 3):
        params = {"query": query, "skip": skip, "head": WEIGHED[case], "min_count": fewest}
        found = perform(TokenWeights, subject, main, **params)
        assert check(found, rows, changed, fewest)
    assert np.abs(found.values["log_weight"]).max() > 0.3


def quarters(kernel):
    """Keys at which an eighth, three, five and seven eighths of a kernel's mass are reached."""
    reached, total, found = 0.0, math.fsum(kernel), []
    for i, mass in enumerate(kernel):
        before, reached = reached, reached + mass
        found += [i] * sum(before < share * total <= reached for share in EIGHTHS)
    return found


def test_first_layer(paths):
    windows = some_windows(5, 23, True)
    subject, main = study(paths["gpt2"], windows, True)
    alone = np.repeat(np.arange(VOCABULARY)[:, None], 20, axis=1)
    alone = with_token(alone, 19, subject.single_id(" the"))
    kept = oracle.mean_keys_kept(paths["gpt2"], windows)
    truth = truth_of(paths["gpt2"], alone)
    rows, *left = [oracle.head_rows(truth, means, (0, 3), 7**-0.5, 19, 2) for means in kept]
    places, occurs = quarters(rows.kernels[0]), np.bincount(windows.ravel(), minlength=VOCABULARY)
    assert 4 == len(places)

    for fewest in (0, 1):
        params = {"query": 19, "skip": 2, "head": "L0H3", "min_count": fewest}
        found = perform(TokenWeights, subject, main, **params)
        listed = [token for token in range(1, VOCABULARY) if occurs[token] >= fewest]
        assert listed == found.coordinates["token"].tolist()
        assert [occurs[token] for token in listed] == found.values["count"].tolist()
        for row, token in enumerate(listed):
            scores = [rows.scores[token][place] for place in places]
            middle = oracles.mean(scores)
            without = [oracles.mean([each.scores[token][p] for p in places]) for each in left]
            error = oracles.jackknife_se(without)
            assert middle == pytest.approx(float(found.values["log_weight"][row]), abs=1e-4)
            assert error == pytest.approx(float(found.errors["log_weight"][row]), abs=1e-3)


def test_one_token_up(one_up):
    """One token scores 1.5 more than all others, which are down by a share of that."""
    subject, main = study(one_up, latin(), start=False)
    for cell, height in (("L0H0", BY), ("L0H1", BY), ("L0H2", 0)):
        found = perform(TokenWeights, subject, main, query=30, skip=0, head=cell, min_count=1)

        tokens = found.coordinates["token"]
        assert UP in tokens
        expected = height * (tokens == UP) - height / (VOCABULARY - 1)
        np.testing.assert_allclose(found.values["log_weight"], expected, atol=1e-5)
    found = perform(TokenWeights, subject, main, query=30, skip=0, min_count=1, top_k=3)
    word, *others = found.words("top_words")
    weight = found.values["top_value"][0]
    assert (subject.decode([UP])[0], 2) == (word, len(others))
    assert BY - BY / (VOCABULARY - 1) == pytest.approx(weight, abs=1e-5)
