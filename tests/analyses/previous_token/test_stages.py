"""The three stages of one head's attention, against plain transformers and plain loops."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.previous_token.stages import Stages, StagesParams
from tests.support import builders, oracles
from tests.support.passes import loaded
from tests.support.refusals import refused
from tests.support.truth import truth_of

LENGTH = 23
SCALES, WINDOWS = {"gpt_neo": 1.0, "llama": 10**-0.5}, {"gpt_neo": 5, "llama": None}


@pytest.fixture(scope="module")
def window():
    return builders.random_ids(1, LENGTH, seed=7).numpy()


def stages(path, window, cell):
    view = pk.run_pass(
        loaded(path), window, positions=range(LENGTH), queries_per_position=1,
        gather=("keys", "queries"),
    )  # fmt: skip
    params = StagesParams(head=cell, text="x")
    return Stages().compute({"main": view}, params, lambda done, total: None)


@pytest.mark.parametrize("name", SCALES)
def test_against_plain_loops(model_dirs, window, name):
    truth = truth_of(model_dirs[name], window)
    found = stages(model_dirs[name], window, "L1H4").values

    queries = truth.queries[1][0, 4].tolist()
    shared = truth.queries[1].shape[1] // truth.keys[1].shape[1]
    keys = truth.keys[1][0, 4 // shared].tolist()
    for n, i in np.ndindex(LENGTH, LENGTH):
        score = SCALES[name] * oracles.dot(queries[n], keys[i])
        assert score == pytest.approx(float(found["score"][n, i]), abs=1e-4)
        seen = i in oracles.visible(n, 0, WINDOWS[name])
        assert seen == bool(np.isfinite(found["masked_score"][n, i]))
        assert not seen or found["masked_score"][n, i] == found["score"][n, i]
    np.testing.assert_allclose(found["pattern"], truth.attentions[1][0, 4], atol=1e-5)


def test_what_is_outside_is_refused(model_dirs, window):
    result = stages(model_dirs["gpt2"], window, "L0H0")
    assert (LENGTH,) == result.select(query=LENGTH - 1).values["pattern"].shape
    with refused(f"expected 0 to {LENGTH - 1}"):
        result.select(query=LENGTH)
    with refused("L0H0 to L2H4"):
        stages(model_dirs["gpt2"], window, "L3H0")
