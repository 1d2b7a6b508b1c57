"""Tiny models in hub format, for tests: one of each architecture, and some with known kernels.

Sizes are small, unequal and mostly prime, so that a swapped axis cannot go unnoticed. The weights
are random, but larger than at the start of a training, so that attention is far from uniform; the
biases and the norms' weights are random too, so that none of them can be forgotten unnoticed.
"""

from tests.support.builders.architectures import ARCHITECTURES, gpt_neox, llama, opt
from tests.support.builders.constructed import LOOK_BACK_SCORE, look_back
from tests.support.builders.induction import AVERAGED_WIDTH, averages, induction, induction_truth
from tests.support.builders.made import START, START_TOKEN, VOCABULARY
from tests.support.builders.positions import helix, helix_coordinates, helix_truth
from tests.support.builders.previous import aggregator, dark_head
from tests.support.builders.truth import (
    hf_eager_attentions,
    hf_eager_model,
    mini_corpus,
    random_ids,
    random_words,
)
