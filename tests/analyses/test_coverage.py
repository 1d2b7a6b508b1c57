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
    "value",
    [
        "etc: etc", "etc: half_mass_distance", "etc: local_mass", "etc: query_variation",
        "etc: attention_distance", "kernel-distances: distance", "entropy: entropy",
        "foreseen-attention: share_16", "one head on two samples: distance",
    ],
)  # fmt: skip
def test_intervals_hold_the_truth(found, value):
    assert found[value].held.mean() > 0.92
    assert found[value].held.min() >= min(0.75, found[value].lowest)


@pytest.mark.slow
def test_most_of_a_bias_is_gone(found):
    for value, most in (("etc: etc", 0.5), ("etc: query_variation", 0.5),
                        ("etc: attention_distance", 0.7)):  # fmt: skip
        left, before = (
            np.abs(np.median(part)) for part in (found[value].left, found[value].before)
        )
        assert left < most * before
        assert before > 0.2


def test_documents_are_short():
    texts = short_documents()
    assert len(texts) >= 1100
    assert all(len(text) >= 700 for text in texts)
    assert all("\n" not in text.strip() for text in texts if len(text) > 1050)
    assert texts == short_documents()
