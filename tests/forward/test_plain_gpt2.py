"""The second GPT-2 is transformers' GPT-2, and each edit changes what it should, and no more."""

import numpy as np
import pytest
import torch

from tests.support import builders
from tests.support.plain_gpt2 import Edits, run

LENGTH = 13


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(1, LENGTH, seed=3)[0].tolist()


@pytest.fixture(scope="module")
def clean(model_dirs, ids):
    return run(model_dirs["gpt2"], ids)


@pytest.mark.parametrize("name", ["gpt2", "gpt2_inverse_layer", "attn_only"])
def test_agrees_with_transformers(model_dirs, name):
    model = builders.hf_eager_model(model_dirs[name]).double()
    ids = builders.random_ids(1, model.config.n_positions, seed=1)
    with torch.inference_mode():
        truth = model(ids, output_attentions=True, output_hidden_states=True, use_cache=False)

    actual = run(model_dirs[name], ids[0].tolist())

    np.testing.assert_allclose(actual.logits, truth.logits[0], atol=1e-5)
    np.testing.assert_allclose(actual.patterns, torch.cat(truth.attentions), atol=1e-5)
    np.testing.assert_allclose(actual.streams, torch.cat(truth.hidden_states[:-1]), atol=1e-5)


@pytest.mark.parametrize("build", [builders.helix, builders.dark_head, builders.aggregator])
def test_agrees_on_constructed_models(tmp_path, build):
    """Also where the norms' weights are far from 1."""
    path, ids = build(tmp_path), builders.random_ids(1, 31)
    attentions = builders.hf_eager_attentions(path, ids)
    actual = run(path, ids[0].tolist())
    np.testing.assert_allclose(actual.patterns, torch.cat(attentions), atol=2e-4)


def test_edits_that_give_back_what_they_get(model_dirs, ids, clean):
    same = run(model_dirs["gpt2"], ids, Edits(scores=lambda _layer, _head, matrix: matrix + 0))
    np.testing.assert_array_equal(clean.logits, same.logits)


@pytest.mark.parametrize("name", ["tokens", "positions"])
def test_edits_of_embeddings(model_dirs, ids, clean, name):
    edited = run(model_dirs["gpt2"], ids, Edits(**{name: np.zeros_like}))
    other = "positions" if name == "tokens" else "tokens"
    rest = run(model_dirs["gpt2"], ids, Edits(**{other: np.zeros_like}))
    np.testing.assert_allclose(clean.streams[0], edited.streams[0] + rest.streams[0])
    assert np.abs(clean.logits - edited.logits).max() > 0.1


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("stream", lambda layer, rows: 2 * rows if layer == 1 else rows),
        ("scores", lambda layer, head, m: 2 * m if (layer, head) == (1, 3) else m),
        ("pattern", lambda layer, head, m: 0 * m if (layer, head) == (1, 3) else m),
        ("head_output", lambda layer, head, v: 2 * v if (layer, head) == (1, 3) else v),
        ("layer_output", lambda layer, rows: 2 * rows if layer == 1 else rows),
    ],
)
def test_edits_of_a_layer_leave_earlier_ones_alone(model_dirs, ids, clean, name, edit):
    edited = run(model_dirs["gpt2"], ids, Edits(**{name: edit}))

    np.testing.assert_array_equal(clean.streams[0], edited.streams[0])
    np.testing.assert_array_equal(clean.patterns[0], edited.patterns[0])
    moved = np.abs(clean.patterns[1] - edited.patterns[1]).max(axis=(1, 2)) > 0
    expected = {"stream": {0, 1, 2, 3, 4}, "scores": {3}, "pattern": {3}}
    assert expected.get(name, set()) == set(moved.nonzero()[0].tolist())
    assert np.abs(clean.streams[2] - edited.streams[2]).max() > 0.1
    assert np.abs(clean.logits - edited.logits).max() > 0.01


def test_head_output_is_edited_before_the_projection(model_dirs, ids, clean):
    silent = [
        run(model_dirs["gpt2"], ids, Edits(pattern=lambda _layer, head, m: m * (head != 2))),
        run(model_dirs["gpt2"], ids, Edits(head_output=lambda _layer, head, v: v * (head != 2))),
    ]
    np.testing.assert_allclose(silent[0].logits, silent[1].logits)
    assert np.abs(clean.logits - silent[0].logits).max() > 0.01


def test_scores_are_edited_before_the_softmax(model_dirs, ids):
    seen = []

    def without_key_2(layer, head, matrix):
        seen.append(np.isneginf(matrix).sum())
        matrix = matrix.copy()
        matrix[3:, 2] = -np.inf
        return matrix

    edited = run(model_dirs["gpt2"], ids, Edits(scores=without_key_2))

    assert [LENGTH * (LENGTH - 1) // 2] * 15 == seen
    assert 0 == edited.patterns[:, :, 3:, 2].max()
    np.testing.assert_allclose(edited.patterns.sum(-1), 1.0)


def test_layer_output_includes_the_bias(model_dirs, ids):
    edits = Edits(layer_output=lambda _layer, rows: np.zeros_like(rows))
    edited = run(model_dirs["attn_only"], ids, edits)
    np.testing.assert_array_equal(edited.streams[0], edited.streams[1])
