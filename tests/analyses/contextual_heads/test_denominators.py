"""Denominators along positions, by plain loops; and what one query sees."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from poskernel_core.analyses.contextual_heads.denominators import Denominators
from poskernel_core.analyses.contextual_heads.experiment.contents import last_rows
from tests.support import builders
from tests.support import oracles_contextual as oracle
from tests.support.builders.contextual import CASES, perform, some_windows, study, with_token
from tests.support.truth import truth_of

CELLS = {"learned": "L2H3", "skip in window": "L1H4", "grouped in window": "L0H3"}


def rows_of(path, main, windows, skip=0, batch=None, layers=None):
    subject, _ = study(path, windows, batch=batch)
    return [row for _, rows in last_rows(subject, main, windows, skip, layers) for row in rows]


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


@pytest.mark.parametrize(("length", "skip", "first"), [(13, 9, 9), (6, 2, 2), (8, 0, 1)])
def test_first_key(paths, length, skip, first):
    """A window of 7 holds the query and six keys before it; skipped keys are left out besides."""
    windows = some_windows(3, length, True)
    _, main = study(paths["mistral"], some_windows(3, 17, True))
    for row in rows_of(paths["mistral"], main, windows, skip):
        assert first == row.first
        assert (1, 3, 5, length - first) == row.kernel.shape == row.log_weight.shape


def test_layers_and_order(paths):
    windows = some_windows(7, 11, True)
    subject, main = study(paths["gpt2"], windows, batch=3)

    found = list(last_rows(subject, main, windows, 2, (1,)))

    assert [range(3), range(3, 6), range(6, 7)] == [some for some, _ in found]
    assert [[1]] * 3 == [[row.layer for row in rows] for _, rows in found]
    whole = rows_of(paths["gpt2"], main, windows, 2)
    cut = torch.cat([rows[0].kernel for _, rows in found], dim=1)
    np.testing.assert_allclose(whole[1].kernel, cut, atol=1e-6)


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
