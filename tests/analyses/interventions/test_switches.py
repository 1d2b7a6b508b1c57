"""Ablations in every architecture; and how experiments are run here."""

import numpy as np
import pytest
import torch

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.data.layouts import TokenPool
from poskernel_core.forward import interventions
from poskernel_core.forward.edits import Chain, Edit
from tests.support import builders
from tests.support import oracles_random as oracle
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.truth import Recorder, truth_of

LENGTH = 11


def subject_of(path, seed=3, batch=None, start=True):
    source = TokenPool(np.arange(1, builders.VOCABULARY), builders.START if start else None, seed)
    windows = np.zeros((1, 1), dtype=np.int64)
    return ExperimentContext(
        loaded(path), windows, [], lambda ids: [f"t{i}" for i in ids], start, source, batch
    )


def perform(experiment, subject, **params):
    return of_all_texts(
        experiment().perform(subject, {}, experiment.params(**params), lambda done, total: None)
    )


def agree(result, name, samples, atol=5e-5):
    """A value and its error are the mean and error of one number, or array, for each sample."""
    mean, error = oracle.mean_and_error(samples)
    np.testing.assert_allclose(result.values[name], mean, atol=atol, err_msg=name)
    np.testing.assert_allclose(result.errors[name], error, atol=atol, err_msg=f"error of {name}")
    assert np.nanmax(error) > 20 * atol


@pytest.mark.parametrize("name", ["attn_only", "gpt_neo", "mistral"])
def test_kept_logits(model_dirs, name):
    """The last positions are unembedded as in a whole run; for 0, all layers run, and no more."""
    model, ids = loaded(model_dirs[name]), builders.random_ids(2, LENGTH, seed=3)
    whole, recorder = model.run(ids), Recorder(patterns=True)

    for keep in (1, 3):
        found = model.run(ids, keep=keep)
        assert (2, keep, builders.VOCABULARY) == found.shape
        np.testing.assert_allclose(found, whole[:, -keep:], atol=1e-5)
    assert 0 == model.run(ids, observers=[recorder], keep=0).numel()
    truth = builders.hf_eager_attentions(model_dirs[name], ids)
    for found, expected in zip(recorder.patterns(), truth, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_positions_removed_from_a_model_that_is_partly_rotary(model_dirs):
    """The run is that of plain transformers with every token at position 0."""
    path, ids, recorder = (
        model_dirs["gpt_neox"],
        builders.random_ids(2, LENGTH, seed=5),
        Recorder(patterns=True),
    )
    truth = truth_of(path, ids.numpy(), still=True)
    edit = interventions.RemovedEmbeddings("positions")
    found = loaded(path).run(ids, edit, [recorder])

    np.testing.assert_allclose(found, truth.logits, atol=1e-4, rtol=1e-4)
    for found_pattern, expected in zip(recorder.patterns(), truth.attentions, strict=True):
        np.testing.assert_allclose(found_pattern, expected, atol=1e-5)
    assert (found - loaded(path).run(ids)).abs().max() > 0.1


@pytest.mark.parametrize("name", ["gpt_neo", "mistral"])
def test_uniform_heads(model_dirs, name):
    ids, model = builders.random_ids(2, LENGTH, seed=7), loaded(model_dirs[name])
    runs = []
    for edit in (Edit(), interventions.UniformHeads([(1, 2), (1, 4), (0, 3)])):
        recorder = Recorder(patterns=True)
        model.run(ids, edit, [recorder], keep=0)
        runs.append(recorder.patterns())
    clean, found = runs

    for layer, head in ((0, 3), (1, 2), (1, 4)):
        visible = (clean[layer][:, head] > 0).float()
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        np.testing.assert_allclose(found[layer][:, head], uniform, atol=1e-6)
    others = [head for head in range(clean[0].shape[1]) if head != 3]
    assert torch.equal(clean[0][:, others], found[0][:, others])
    assert (clean[1] - found[1])[:, [0, 1, 3]].abs().max() > 1e-3


class Affine(Edit):
    """Everything times a factor, plus a step: the order of two matters."""

    def __init__(self, factor, step):
        self.change = lambda x: factor * x + step

    def tokens(self, x):
        return self.change(x)

    def rotation(self, cos, sin):
        return self.change(cos), self.change(sin) + 1

    positions = tokens

    def residual(self, layer, x):
        return self.change(x) + layer

    scores = pattern = heads = output = residual


def test_a_chain_asks_in_order():
    first, second, x = Affine(2, 3), Affine(5, 7), torch.tensor([1.0, 11.0])
    chain, empty = Chain([first, second]), Chain([])

    for place in ("tokens", "positions", "residual", "scores", "pattern", "heads", "output"):
        layer = () if place in ("tokens", "positions") else (3,)
        expected = getattr(second, place)(*layer, getattr(first, place)(*layer, x))
        assert torch.equal(expected, getattr(chain, place)(*layer, x))
        assert getattr(empty, place)(*layer, x) is x
    expected = second.rotation(*first.rotation(x, -x))
    for one, other in zip(expected, chain.rotation(x, -x), strict=True):
        assert torch.equal(one, other)
    assert {n for n in vars(Edit) if n[0] != "_"} <= {*vars(Chain), *vars(chain)}
