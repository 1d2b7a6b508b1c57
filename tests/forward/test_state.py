"""One model that is kept gives what a fresh one gives, whatever ran before."""

import copy
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.scaled_rotation import ScaledRotation
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store
from tests.support.builders import random_ids
from tests.support.builders.made import build, rotary_sizes
from tests.support.passes import loaded
from tests.support.stages import carried_out

pytestmark = pytest.mark.usefixtures("unchecked")

CONTEXT, BEFORE, HALF = 29, 16, 5
SCALINGS = ("default", *ROPE_INIT_FUNCTIONS)
EVERY_PARAMETER = {
    "rope_theta": 500.0, "factor": 2.0, "original_max_position_embeddings": BEFORE,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "partial_rotary_factor": 1.0,
    "short_factor": [1.0 + n / 7 for n in range(HALF)],
    "long_factor": [2.0 + n for n in range(HALF)],
}  # fmt: skip
LENGTHS = (BEFORE, BEFORE + 1, CONTEXT, CONTEXT + 1, 2 * CONTEXT + 3)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The directory of a model with a scaling; for Gemma 3, one in each kind of layer."""

    @cache
    def make(family, scaling):
        path = tmp_path_factory.mktemp(f"{family}-{scaling}") / "m"
        sizes = rotary_sizes(context=CONTEXT, heads=6, key_heads=2, head_width=2 * HALF)
        rope = {"rope_type": scaling, **EVERY_PARAMETER}
        if family == "gemma3":
            other = {"rope_type": "default", "rope_theta": 100.0}
            sizes |= {
                "rope_parameters": {"sliding_attention": other, "full_attention": rope},
                "layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2,
                "sliding_window": 7,
            }  # fmt: skip
            return build(path, Gemma3TextConfig(**sizes, hidden_size=60), seed=31)
        return build(path, LlamaConfig(**sizes | {"rope_parameters": rope}, hidden_size=60), 31)

    return make


@cache
def untouched(path):
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()


@cache
def fresh_logits(path, length):
    """What transformers says in a model that has run nothing else."""
    with torch.inference_mode():
        return copy.deepcopy(untouched(path))(random_ids(2, length), use_cache=False).logits


RUNS = st.lists(
    st.tuples(st.sampled_from(LENGTHS), st.sampled_from(["plain", "edited", "scaled"])),
    min_size=6, max_size=9,
)  # fmt: skip


@pytest.mark.parametrize(
    ("family", "scaling"),
    [*(("llama", each) for each in SCALINGS), ("gemma3", "dynamic"), ("gemma3", "longrope")],
)
@settings(max_examples=8)
@given(runs=RUNS)
def test_the_same_whatever_ran_before(made, family, scaling, runs):
    path = made(family, scaling)
    model = loaded(path)
    for length, kind in runs:
        edits = {"plain": None, "edited": Edit(), "scaled": ScaledRotation("linear", 2, CONTEXT)}
        found = model.run(random_ids(2, length), edits[kind])
        if kind != "scaled":
            torch.testing.assert_close(found, fresh_logits(path, length), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_linear_scaling_is_of_the_trained_angles(made, scaling):
    """Transformers' own model with half its angles, which no longer change with the length."""
    path = made("llama", scaling)
    twin, tokens = copy.deepcopy(untouched(path)), random_ids(2, 2 * CONTEXT)
    rotary = twin.model.rotary_emb
    with torch.inference_mode():
        twin(tokens[:, : (length := CONTEXT if scaling != "longrope" else BEFORE)])
        rotary.rope_type, rotary.inv_freq = "default", rotary.inv_freq / 2
        expected = twin(tokens, use_cache=False).logits
    found = loaded(path).run(tokens, ScaledRotation("linear", 2, length))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def answer(shared, path, name, **run):
    """The result of a question, with a kept worker's models and a store."""
    made = describe_run(str(path), windows=10, **run)
    return carried_out(shared, make_plan(Request(analysis=name, run=made)))


def test_stored_results_of_a_kept_model(made, tmp_path):
    """What is asked after longer contexts is answered as if nothing had been asked before."""
    path = made("llama", "longrope")
    kept, fresh = WorkerContext(Store(tmp_path / "kept")), WorkerContext(Store(tmp_path / "fresh"))
    answer(kept, path, "longer-contexts", context=CONTEXT)
    for name in ("etc", "rotary-spectrum"):
        found, expected = (answer(each, path, name, context=CONTEXT) for each in (kept, fresh))
        for value, array in expected.values.items():
            np.testing.assert_array_equal(found.values[value], array)
