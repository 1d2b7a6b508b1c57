"""Intervals of 95 % hold what many texts say, in about 95 of 100 samples of few texts."""

import numpy as np
import pytest

from tools.coverage import coverage, short_documents

SAMPLES = 24


@pytest.fixture(scope="module")
def found():
    return coverage("demo-attn-2l", SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [
        "ETC",
        "half-mass distance",
        "attention to the previous token",
        "attention foreseen with 16 keys",
    ],
)
def test_intervals_hold_the_truth(found, measure):
    assert 0.90 < found[measure].held.mean() < 0.99
    assert found[measure].held.min() >= 0.75


@pytest.mark.slow
def test_biases_are_told(found):
    etc, distance = found["ETC"], found["distance to observed attention"]
    assert -0.8 < np.median(etc.bias) < -0.2
    assert abs(np.median(etc.told - etc.bias)) < 0.25
    assert np.median(distance.bias) > np.median(distance.told) > 1


def test_documents_are_short():
    texts = short_documents()
    assert len(texts) >= 1100
    assert all(len(text) >= 700 for text in texts)
    assert all("\n" not in text.strip() for text in texts if len(text) > 1050)
    assert texts == short_documents()
