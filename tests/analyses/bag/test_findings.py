"""What is found about the bag of tokens."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import check, found, uncertain

NEURONS = "contextual-neurons"
NEURON = {"neuron": 3}
WORDS = {"word": " server"}, {"words": [" client", " host"]}
SAID = [
    (NEURONS, {"drive_share": ([0.1, 0.7, 0.9], 0.01)}, {}, {},
     "In 2 of 3 neurons|0.5 or more|largest in neuron 2 (0.90)"),
    (NEURONS, {"bag_centred_r2": ([[0.0] * 3, [0.6] * 3], 0.01)}, {}, {}, "3 of 3 posi|above 0.25"),
    (NEURONS, {"bag_centred_r2": ([[0.0] * 3, [0.1] * 3], 0.01)}, {}, {}, "3 of 3 posi|below 0.25"),
    (NEURONS, {"kernel": [0.5, 0.5, 0, 0, 0]}, {}, {}, "2 effective tokens, of 5 that position 4"),
    ("neuron", {"contribution": [4.0, -1, -1, -1, -1, np.nan]}, NEURON, {},
     "neuron 3 adds 2 standard deviations|against it 0.50 less"),
    ("neuron", {"related": [0.2, -0.9, 0.5, 1], "output_cosine": [0, 0.3, 0, 1]}, NEURON, {},
     "neuron 1|the opposite contexts as neuron 3 (correlation −0.90)|is 0.30"),
    ("neuron-trace", {"r2": 0.7, "sign_agreement": 0.95}, NEURON, {}, " 3 |better|R² 0.70|at 0.95"),
    ("neuron-trace", {"r2": -0.3, "sign_agreement": 0.95}, NEURON, {}, "no better|R² −0.30"),
    ("neuron-latents", {"share": [0.6, 0.1]}, NEURON, {}, "explains 0.60 of neuron 3|one context"),
    ("neuron-latents", {"share": [0.3, 0.1]}, NEURON, {}, "only 0.30 of neuron 3|a mixture"),
    ("extended-embedding", {"cosine": [0.8, 0.7], "plain_cosine": [0.4, 0.1]}, *WORDS,
     "“␣client” is nearest to “␣server”|0.80, and 0.40 between their plain"),
    ("word-neurons", {"score": [1.0, 4.2, -5]}, {}, {}, "Of 3 neurons|neuron 1 most|add 4.2 stand"),
]  # fmt: skip
"""Question, numbers with errors, parameters, texts, and parts of what is said."""


@pytest.mark.parametrize(("question", "numbers", "params", "texts", "parts"), SAID)
def test_what_is_said(question, numbers, params, texts, parts):
    check(found(question, numbers, params, texts), *parts.split("|"))


def test_one_neuron():
    """Exact numbers without spread, or unknown ones, say nothing."""
    said = found(NEURONS, {"drive_share": (0.2, 0.01)}, neuron=3)
    check(said, "part of neuron 3 has 0.20", "less than 0.5")
    assert "" == found("neuron", {"contribution": [0.1, 0.1, 0.1]}, NEURON)
    assert "" == found("neuron-trace", {"r2": np.nan, "sign_agreement": 0.95}, NEURON)
    assert "" == found(NEURONS, {"bag_centred_r2": np.full((2, 3), np.nan)})


@given(uncertain(0.5), uncertain(0.25))
def test_nothing_where_the_interval_holds_the_limit(half, low):
    value, error = half
    assert "" == found(NEURONS, {"drive_share": half}, neuron=3)
    assert "" == found(NEURONS, {"drive_share": ([value, 0.1], [error, 0.01])})
    value, error = low
    assert "" == found(NEURONS, {"bag_centred_r2": ([[value] * 3], error)})
