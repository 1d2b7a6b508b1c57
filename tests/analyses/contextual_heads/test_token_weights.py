"""Content weights of tokens: mean scores by plain loops, and one token that is weighted up."""

import math

import numpy as np
import pytest

from poskernel_core.analyses.contextual_heads.denominators import TokenWeights
from tests.support import builders, oracles
from tests.support import oracles_contextual as oracle
from tests.support.builders import VOCABULARY, contextual
from tests.support.builders.contextual import CASES, perform, some_windows, study, with_token
from tests.support.truth import truth_of

UP, BY, LENGTH = 211, 1.5, 31
EIGHTHS = (1 / 8, 3 / 8, 5 / 8, 7 / 8)
CELLS = {"learned": "L2H3", "grouped in window": "L2H3"}


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
    layer, head = int(CELLS[case][1]), int(CELLS[case][3])
    changed = with_token(windows, query, subject.single_id(" the"))
    truth, kept = truth_of(paths[name], changed), oracle.mean_keys_kept(paths[name], windows)
    place = (layer, head), 1 / divisor[layer], query, skip, window[layer]
    rows = [oracle.head_rows(truth, means, *place) for means in kept]

    for fewest in (1, 3):
        params = {"query": query, "skip": skip, "head": CELLS[case], "min_count": fewest}
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
