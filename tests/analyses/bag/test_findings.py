"""What is found about the bag of tokens."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import found, uncertain

NEURONS = "contextual-neurons"
NEURON = {"neuron": 3}


def test_neurons_that_the_bag_drives():
    assert (
        "2 of 3 neurons have a share of variance from the bag of 0.5 or more for certain; neuron 2 "
        "has the largest, 0.90."
    ) == found(NEURONS, {"drive_share": ([0.1, 0.7, 0.9], 0.01)})
    assert (
        "The bag's part of neuron 3 has 0.20 of the variance of the neuron itself, less than 0.5."
    ) == found(NEURONS, {"drive_share": (0.2, 0.01)}, neuron=3)


@pytest.mark.parametrize(
    ("fit", "says"), [(0.6, "3 of 3 positions|above"), (0.1, "3 of 3 positions|below")]
)
def test_how_well_the_bag_predicts(fit, says):
    count, how = says.split("|")
    assert (
        f"At {count} the bag's centred R² for the heads' output is certainly {how} 0.25 with the "
        "best kernel and scale (1 is perfect, 0 no better than the mean)."
    ) == found(NEURONS, {"bag_centred_r2": ([[0.0] * 3, [fit] * 3], 0.01)})


@given(uncertain(0.5), uncertain(0.25))
def test_nothing_where_the_interval_holds_the_limit(half, low):
    value, error = half
    assert "" == found(NEURONS, {"drive_share": half}, neuron=3)
    assert "" == found(NEURONS, {"drive_share": ([value, 0.1], [error, 0.01])})
    value, error = low
    assert "" == found(NEURONS, {"bag_centred_r2": ([[value] * 3], error)})
    assert "" == found(NEURONS, {"bag_centred_r2": np.full((2, 3), np.nan)})


def test_how_far_the_kernel_spreads():
    assert (
        "The kernel of the bag spreads over 2 effective tokens, of 5 that position 4 sees."
    ) == found(NEURONS, {"kernel": [0.5, 0.5, 0, 0, 0]})


def test_the_tokens_of_a_neuron():
    """The mean is 0 and the variance 4."""
    assert (
        "The strongest token for neuron 3 adds 2 standard deviations more than the mean token, the "
        "strongest against it 0.50 less."
    ) == found("neuron", {"contribution": [4.0, -1, -1, -1, -1, np.nan]}, NEURON)
    assert "" == found("neuron", {"contribution": [0.1, 0.1, 0.1]}, NEURON)


def test_the_neuron_that_reads_most_alike():
    numbers = {"related": [0.2, -0.9, 0.5, 1], "output_cosine": [0, 0.3, 0, 1]}
    assert (
        "Of all others, neuron 1 reads most nearly the opposite contexts as neuron 3 (correlation "
        "−0.90); the cosine of what they write is 0.30."
    ) == found("neuron", numbers, NEURON)


@pytest.mark.parametrize(("fit", "how"), [(0.7, "better"), (-0.3, "no better")])
def test_a_neuron_along_a_text(fit, how):
    shown = "0.70" if fit > 0 else "−0.30"
    assert (
        f"On this text, neuron 3 is predicted {how} than by its mean (R² {shown}; 1 is perfect), "
        "and with the right sign at 0.95 of the positions."
    ) == found("neuron-trace", {"r2": fit, "sign_agreement": 0.95}, NEURON)
    assert "" == found("neuron-trace", {"r2": np.nan, "sign_agreement": 0.95}, NEURON)


def test_sub_latents():
    assert (
        "One sub-latent explains 0.60 of neuron 3's variance over tokens (limit 0.5): the neuron "
        "mostly reads one context."
    ) == found("neuron-latents", {"share": [0.6, 0.1]}, NEURON)
    assert (
        "The largest sub-latent explains only 0.30 of neuron 3's variance over tokens (limit 0.5): "
        "the neuron reads a mixture."
    ) == found("neuron-latents", {"share": [0.3, 0.1]}, NEURON)


def test_near_tokens_and_neurons_of_words():
    numbers = {"cosine": [0.8, 0.7], "plain_cosine": [0.4, 0.1]}
    near = found(
        "extended-embedding", numbers, {"word": " server"}, {"words": [" client", " host"]}
    )
    assert (
        "In the bag, “␣client” is nearest to “␣server”: the cosine is 0.80, and 0.40 between their "
        "plain embeddings."
    ) == near
    assert (
        "Of 3 neurons, the words favour neuron 1 most: they add 4.2 standard deviations more than "
        "the mean token."
    ) == found("word-neurons", {"score": [1.0, 4.2, -5]})
